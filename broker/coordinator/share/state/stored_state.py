"""What the share coordinator keeps of a share-partition (KIP-932).

Two statements about a record are put in order by its delivery count, and then by its state: an
acknowledgement counts more than a release of the same delivery. So what a leader says can be taken
in any order, and twice. A leader of an earlier epoch, and one that does not know of a reset, is
refused.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.record_state import StateBatch
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2

NO_EPOCH: Final = -1
"""An epoch that is not checked."""
UNKNOWN_START: Final = -1
"""The start offset of a share-partition that was never read: its group says where to begin."""
UNKNOWN_COUNT: Final = -1

_FIRST = attrgetter("first")
_LAST = attrgetter("last")


class SharePartitionKey(NamedTuple):
    """A partition of a topic, as one group sees it."""

    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def coordinated_name(self) -> str:
        """The name by which it has its place in __share_group_state, which is Kafka's."""
        return f"{self.group_id}:{self.topic_text}:{self.partition}"

    @property
    def topic_text(self) -> str:
        """The topic id as Kafka writes it."""
        return urlsafe_b64encode(self.topic_id).decode().rstrip("=")


class StateWrite(NamedTuple):
    """What a leader has written. ``start_offset`` is -1 if it does not change."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    final_records: int
    batches: Sequence[StateBatch]


class StoredShareState:
    """The state of one share-partition."""

    __slots__ = (
        "batches",
        "final_records",
        "leader_epoch",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "updates",
    )

    def __init__(
        self,
        start_offset: int,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        snapshot_epoch: int = 0,
        final_records: int = UNKNOWN_COUNT,
        batches: Iterable[StateBatch] = (),
    ) -> None:
        self.start_offset = start_offset
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.snapshot_epoch = snapshot_epoch
        self.final_records = final_records
        self.batches = list(batches)
        self.updates = 0
        """The updates in the log since the last snapshot."""

    def check(self, state_epoch: int, leader_epoch: int) -> None:
        """Check that whoever asks leads in this epoch, and knows the newest reset.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH.
        """
        if leader_epoch != NO_EPOCH and leader_epoch < self.leader_epoch:
            raise KafkaError(
                errors_pb2.FENCED_LEADER_EPOCH,
                f"leader epoch {leader_epoch} is old: another broker leads in {self.leader_epoch}",
            )
        if state_epoch != NO_EPOCH and state_epoch < self.state_epoch:
            raise KafkaError(
                errors_pb2.FENCED_STATE_EPOCH,
                f"state epoch {state_epoch} is old: the offsets were reset in {self.state_epoch}",
            )

    def lead_in(self, leader_epoch: int) -> None:
        """Refuse leaders of earlier epochs from now on."""
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def take(self, write: StateWrite) -> None:
        """Add what a leader says."""
        self.lead_in(write.leader_epoch)
        self.start_offset = max(self.start_offset, write.start_offset)
        self.final_records = write.final_records
        for batch in write.batches:
            join(self.batches, batch)
        keep = bisect_left(self.batches, self.start_offset, key=_LAST)
        del self.batches[:keep]
        if self.batches and self.batches[0].first < self.start_offset:
            self.batches[0] = self.batches[0]._replace(first=self.start_offset)


def join(batches: list[StateBatch], added: StateBatch) -> None:
    """Add a statement to ``batches``, which are in order and do not overlap."""
    begin = bisect_left(batches, added.first - 1, key=_LAST)
    end = bisect_right(batches, added.last + 1, key=_FIRST)
    merged: list[StateBatch] = []
    at = added.first
    for batch in batches[begin:end]:
        _append(merged, added._replace(first=at, last=min(batch.first - 1, added.last)))
        for part in _pieces(batch, added):
            _append(merged, part)
        at = max(at, batch.last + 1)
    _append(merged, added._replace(first=at))
    batches[begin:end] = merged


def _pieces(batch: StateBatch, added: StateBatch) -> Iterator[StateBatch]:
    """Yield a batch as it is after ``added``: what comes before, what both speak of, and the rest.
    Parts may be empty."""
    first, last = max(batch.first, added.first), min(batch.last, added.last)
    if first > last:
        yield batch
        return
    newer = max(batch, added, key=lambda one: (one.delivery_count, one.state))
    yield batch._replace(last=first - 1)
    yield newer._replace(first=first, last=last)
    yield batch._replace(first=last + 1)


def _append(batches: list[StateBatch], added: StateBatch) -> None:
    if added.last < added.first:
        return
    before = batches[-1] if batches else None
    if before is not None and before[1] + 1 == added.first and before[2:] == added[2:]:
        batches[-1] = before._replace(last=added.last)
    else:
        batches.append(added)
