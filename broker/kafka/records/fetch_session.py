"""A fetch session: the positions of a consumer, and what the last response said about each
(KIP-227).

A request names only the partitions that change. A response contains only partitions with news:
records, a changed offset of the partition, or an error, which is repeated each time. Between two
requests the positions of the session stay registered with their partitions, so partitions without
news cost nothing, however many there are.

A session holds only partitions that are here and that its owner may read. If it is given another
one, the response that says so ends it: it has session id 0. The client then names all its
partitions in each request, so it learns when it may read what was refused.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.kafka.records.fetch_messages import FetchRequest, FetchTopic, TopicOutcomes
from quorate.broker.kafka.wire.primitives import MAX_ELEMENTS
from quorate.broker.replication.api import (
    FetchOutcome,
    FetchPartition,
    Isolation,
    isolation_of,
)
from quorate.broker.replication.hosting.delayed_fetch import DelayedFetch, FetchPosition
from quorate.broker.security.authorizer import Authorizer, Rights
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_EPOCH: Final = 0
"""The session epoch of a request that begins a new session."""
_LAST_EPOCH: Final = 2**31 - 1
_NOT_CHECKED: Final = object()
_NOT_HERE: Final = frozenset(
    {errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.INCONSISTENT_TOPIC_ID}
)

PartitionOutcomes: TypeAlias = list[tuple[FetchPosition, FetchOutcome]]


class SessionOwner(NamedTuple):
    """The client that began a session. No other client may continue or end it."""

    principal: KafkaPrincipal
    client_host: str


class FetchSession:
    """A fetch session. ``turn`` is held while a request is being carried out, so requests of a
    session run one at a time, in their order.
    """

    def __init__(
        self, session_id: int, owner: SessionOwner, now_ms: int, *, uses_topic_ids: bool = False
    ) -> None:
        """``uses_topic_ids`` is True if the client names topics by their ids (KIP-516)."""
        self.id = session_id
        self.owner = owner
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.counted = 0
        """The partitions of this session that its cache has counted."""
        self.turn = asyncio.Lock()
        self.poll = DelayedFetch()
        self._uses_topic_ids = uses_topic_ids
        self._positions: dict[TopicPartition | TopicIdPartition, FetchPosition] = {}
        """The positions by the names of their topics, or else by their ids: two topics may have
        the same name one after the other."""
        self._has_unknown = False
        self._partitions_of: Counter[str] = Counter()
        self._checked_against: object = _NOT_CHECKED
        self._epoch = FIRST_EPOCH
        self._isolation_level = 0

    def __len__(self) -> int:
        return len(self._positions)

    def update(self, request: FetchRequest) -> int:
        """Apply the changes of a request to the session, and return an error code. If it is not
        NONE, the session cannot be used for this request.

        A session ends if it is empty, or if it would have more partitions than one request may
        name.
        """
        refusal = self._refusal(request)
        if refusal != errors_pb2.NONE:
            return refusal
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        for name, topic_id, wants in request.topics:
            if topic_id is None:
                for want in wants:
                    self._put(want.tp, want)
            else:
                self._has_unknown |= not name
                for want in wants:
                    self._put(TopicIdPartition(topic_id, want.tp.partition), want)
        for key in request.forgotten:
            self._forget(key)
        if request.isolation_level != self._isolation_level:
            self._isolation_level = request.isolation_level
            self.poll.keep((), self._positions.values())
        if len(self) > MAX_ELEMENTS:
            return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
        return errors_pb2.NONE

    def _refusal(self, request: FetchRequest) -> int:
        """Return why the request cannot continue the session, or NONE. All requests of a session
        name topics in the same way, by name or by id (KIP-516).
        """
        if self.poll.is_closed:
            return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != self._epoch:
            return errors_pb2.INVALID_FETCH_SESSION_EPOCH
        if (request.unnamed is not None) is not self._uses_topic_ids:
            return errors_pb2.FETCH_SESSION_TOPIC_ID_ERROR
        return errors_pb2.NONE

    def may_all_be_read(self, authorizer: Authorizer, rights: Rights) -> bool:
        """Return whether all topics of the session are known, and its owner may still read them."""
        if self._has_unknown:
            return False
        if self._checked_against is not authorizer.basis:
            topics = self._partitions_of
            readable = rights.topics(AclOperation.READ, topics, log_denied=False)
            if len(readable) < len(topics):
                return False
            self._checked_against = authorizer.basis
        return True

    def wants(self) -> list[FetchTopic]:
        """Return all positions of the session by topic, in the form of ``FetchRequest.topics``."""
        topics: dict[tuple[str, TopicId | None], list[FetchPartition]] = {}
        for position in self._positions.values():
            want = position.want
            topics.setdefault((want.tp.topic, want.topic_id), []).append(want)
        return [(name, topic_id, wants) for (name, topic_id), wants in topics.items()]

    def response_outcomes(
        self, found: Mapping[FetchPosition, FetchOutcome]
    ) -> tuple[PartitionOutcomes, bool]:
        """Return the outcomes of ``found`` that are news, and whether all partitions are here.

        Partitions that had no turn come first in the next response. Those that had one come last.
        """
        all_are_here = True
        reported: PartitionOutcomes = []
        waiting: list[FetchPosition] = []
        served: list[FetchPosition] = []
        for position, outcome in found.items():
            offsets = (
                outcome.high_watermark,
                outcome.last_stable_offset,
                outcome.log_start_offset,
            )
            is_news = position.reported != offsets
            position.reported = offsets
            if outcome.size:
                served.append(position)
                is_news = True
            elif outcome.error_code != errors_pb2.NONE or outcome.preferred_read_replica >= 0:
                waiting.append(position)
                position.reported = None
                is_news = True
                if outcome.error_code in _NOT_HERE:
                    all_are_here = False
            elif position.want.fetch_offset < self._end_of_reads(outcome):
                waiting.append(position)
            if is_news:
                reported.append((position, outcome))
        self.poll.keep(waiting, served)
        return reported, all_are_here

    def close(self) -> None:
        """End the session. A request that waits for news gets its response."""
        self.poll.close(self._positions.values())

    def _end_of_reads(self, outcome: FetchOutcome) -> int:
        if isolation_of(self._isolation_level) is Isolation.READ_COMMITTED:
            return outcome.last_stable_offset
        return outcome.high_watermark

    def _put(self, key: TopicPartition | TopicIdPartition, want: FetchPartition) -> None:
        position = self._positions.get(key)
        if position is not None:
            self.poll.move(position, want)
            return
        self._positions[key] = self.poll.add(want)
        topic = want.tp.topic
        if not self._partitions_of[topic]:
            self._checked_against = _NOT_CHECKED
        self._partitions_of[topic] += 1

    def _forget(self, key: TopicPartition | TopicIdPartition) -> None:
        position = self._positions.pop(key, None)
        if position is None:
            return
        self.poll.remove(position)
        topic = position.want.tp.topic
        self._partitions_of[topic] -= 1
        if not self._partitions_of[topic]:
            del self._partitions_of[topic]


def by_topic(outcomes: PartitionOutcomes) -> TopicOutcomes:
    """Return each topic, by id if the client names it so, with the outcomes of its partitions."""
    topics: dict[str | TopicId, list[tuple[int, FetchOutcome]]] = {}
    for position, outcome in outcomes:
        want = position.want
        tp = want.tp
        topics.setdefault(want.topic_id or tp.topic, []).append((tp.partition, outcome))
    return topics.items()
