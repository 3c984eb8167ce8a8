"""The share sessions of a broker (KIP-932): which partitions a member fetches here.

A session belongs to the connection on which it began. When that closes, or the session ends, the
records that the member has are available to others again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.share_groups import GROUP_SHARE_MAX_SHARE_SESSIONS
from quorate.broker.coordinator.share.share_leader import ShareLeader
from quorate.broker.kafka.share.share_messages import SharePlace
from quorate.broker.kafka.wire.primitives import MAX_ELEMENTS
from quorate.broker.telemetry.client_instances import ClientConnection
from quorate.common.configuration import Values
from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate_proto.v1 import errors_pb2

FIRST_EPOCH: Final = 0
"""The epoch of the request that begins a session."""
FINAL_EPOCH: Final = -1
"""The epoch of the request that ends it."""
_LAST_EPOCH: Final = 2**31 - 1

SESSIONS: Final = Family(
    "quorate_share_sessions",
    MetricKind.GAUGE,
    "ShareSessionCache",
    "ShareSessionsCount",
    "Share sessions: one for each member of a share group that fetches here.",
)
HANDED_OUT: Final = Family(
    "quorate_share_records_handed_out_total",
    MetricKind.COUNTER,
    "ShareGroupMetrics",
    "RecordsAcquired",
    "Records that were handed to members of share groups.",
)
HANDED_TO_GROUP: Final = Family(
    "quorate_share_group_records_handed_out_total",
    MetricKind.COUNTER,
    "ShareGroupMetrics",
    "GroupRecordsAcquired",
    "The same for each share group that is fetched for here. It begins anew when a group comes "
    "back.",
    ("group",),
)
ACKNOWLEDGED: Final = Family(
    "quorate_share_records_acknowledged_total",
    MetricKind.COUNTER,
    "ShareGroupMetrics",
    "RecordAcknowledgementsPerSec",
    "Records that members of share groups have acknowledged, in whatever way.",
)
IN_FLIGHT: Final = Family(
    "quorate_share_records_in_flight",
    MetricKind.GAUGE,
    "SharePartitionMetrics",
    "InFlightMessageCount",
    "Records from the first that is not accepted or rejected to the last that was handed out.",
    ("group", "topic", "partition"),
)
IN_FLIGHT_OF_GROUP: Final = Family(
    "quorate_share_group_records_in_flight",
    MetricKind.GAUGE,
    "ShareGroupMetrics",
    "InFlightMessageCount",
    "The same of all partitions of a share group that are led here.",
    ("group",),
)


class ShareSession:
    """The partitions that one member fetches from this broker."""

    def __init__(self, group_id: str, member_id: str, connection: ClientConnection) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.epoch = FIRST_EPOCH
        self.places: dict[SharePlace, None] = {}
        self.on_close: Callable[[], None] | None = None

    def update(self, added: Iterable[SharePlace], forgotten: Iterable[SharePlace]) -> None:
        """Take what a request adds, and what it removes.

        Raises:
            KafkaError: the session would have more partitions than a request may name.
        """
        self.places.update(dict.fromkeys(added))
        for place in forgotten:
            self.places.pop(place, None)
        if len(self.places) > MAX_ELEMENTS:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"{len(self.places)} partitions in one share session: at most {MAX_ELEMENTS}",
            )

    def advance(self) -> None:
        """Expect the next request."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def rotated(self) -> list[SharePlace]:
        """Return the partitions, with another one first each time."""
        places = list(self.places)
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessionCache:
    """All share sessions of a broker, by group and member."""

    def __init__(self, most: int, leader: ShareLeader) -> None:
        self._most = most
        self._leader = leader
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: Counter[str] = Counter()

    @classmethod
    def of(cls, config: Values, leader: ShareLeader) -> "ShareSessionCache":
        return cls(config[GROUP_SHARE_MAX_SHARE_SESSIONS], leader)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: ClientConnection) -> ShareSession:
        """Begin a session, in place of one that the member may have.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        before = self._sessions.get((group_id, member_id))
        if before is None and len(self._sessions) >= self._most:
            raise KafkaError(
                errors_pb2.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {self._most} share sessions: group.share.max.share.sessions",
            )
        if before is not None:
            self._remove(before)
        session = ShareSession(group_id, member_id, connection)
        session.on_close = partial(self.close, session)
        connection.watchers[session.on_close] = None
        self._sessions[group_id, member_id] = session
        self._members[group_id] += 1
        session.advance()
        return session

    def get(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a member, which must expect this epoch, or be about to end.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(
                errors_pb2.SHARE_SESSION_NOT_FOUND,
                f"member {member_id!r} of share group {group_id!r} has no session here",
            )
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise KafkaError(
                errors_pb2.INVALID_SHARE_SESSION_EPOCH,
                f"share session of member {member_id!r}: epoch {epoch} instead of {session.epoch}",
            )
        return session

    def close(self, session: ShareSession) -> None:
        """End a session: others may have the records of its member."""
        if self._sessions.get((session.group_id, session.member_id)) is not session:
            return
        self._remove(session)
        self._leader.release(session.group_id, session.member_id)
        if session.group_id not in self._members:
            is_unused = partial(self._is_unused, session.group_id)
            self._leader.forget_group(session.group_id, is_unused)

    def _is_unused(self, group_id: str) -> bool:
        return group_id not in self._members

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.group_id, session.member_id]
        if session.on_close is not None:
            session.connection.watchers.pop(session.on_close, None)
        self._members[session.group_id] -= 1
        if not self._members[session.group_id]:
            del self._members[session.group_id]

    def samples(self) -> Iterator[Sample]:
        """Yield the figures of share groups of this broker."""
        yield Sample(SESSIONS, len(self._sessions))
        yield Sample(HANDED_OUT, self._leader.handed_out)
        for group_id, handed_out in self._leader.handed_to.items():
            yield Sample(HANDED_TO_GROUP, handed_out, (group_id,))
        yield Sample(ACKNOWLEDGED, self._leader.acknowledged)
        of_groups: Counter[str] = Counter()
        for led in self._leader:
            if led.is_current:
                of_groups[led.key.group_id] += led.records_in_flight
                labels = (led.key.group_id, led.tp.topic, str(led.tp.partition))
                yield Sample(IN_FLIGHT, led.records_in_flight, labels)
        for group_id, records in of_groups.items():
            yield Sample(IN_FLIGHT_OF_GROUP, records, (group_id,))
