"""The batches of a writer that are not acknowledged: which are in flight, and which to send next.

This is pure: the sender reports events, and asks which frames to send.

Several batches of each partition are in flight at once, in order. Those that fail with a retriable
error are sent again, in order, once all answers for the batches in flight have arrived. The broker
recognizes repeated batches by their sequence numbers, so nothing is written twice. It remembers the
last five batches of a partition. Therefore:

- No more than five are in flight at once.
- Batches that have failed are sent one at a time. Otherwise others could be written behind them
  meanwhile, and make the broker forget them.
- The very first batch goes alone. A broker that does not know the producer accepts whichever batch
  comes first, and a second one must not overtake it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorate.common.topic_partition import TopicPartition
from quorate.spark.call_errors import RETRIABLE, error_name
from quorate.spark.errors import ClusterUnavailable, RecordTooLarge, WriteRefused
from quorate.spark.writing.batch_builder import ProducerBatch
from quorate_proto.v1.errors_pb2 import (
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)

IN_FLIGHT_MAX: Final = 5
"""The limit for batches of one partition in flight: as many as a broker recognizes if they are sent
again."""
FRAME_BYTES: Final = 1 << 20
"""The size at which a frame is closed."""
PAUSE_MS_FIRST: Final = 100
PAUSE_MS_MAX: Final = 1_000

_MAY_HEAL: Final = RETRIABLE | {NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND}


class WriteFrame(NamedTuple):
    """Batches that are sent to one leader together."""

    leader: str
    batches: Sequence[ProducerBatch]


class BatchOutcome(NamedTuple):
    """A leader's answer about one batch: a Kafka error code, and its message."""

    error_code: int
    message: str = ""


@dataclass(slots=True)
class _Partition:
    """The unacknowledged batches of one partition, in the order of their sequence numbers."""

    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    """The batches from the first unanswered one on. Those behind it may be answered."""
    done: set[ProducerBatch] = field(default_factory=set)
    """The batches in flight that are acknowledged."""
    failed: list[ProducerBatch] = field(default_factory=list)
    """The batches that have failed, to be sent again once none is in flight."""
    failing_since_ms: int | None = None
    retry_at_ms: int = 0
    pause_ms: int = PAUSE_MS_FIRST
    known: bool = False
    """True once the leader has accepted a batch of this writer."""
    last_failed: int = 0
    """The highest number of a batch that has failed."""

    def can_send(self) -> bool:
        """Return True if the next batch may be sent."""
        if not self.waiting or self.failed:
            return False
        first = self.in_flight[0] if self.in_flight else self.waiting[0]
        one_at_a_time = not self.known or first.number <= self.last_failed
        return len(self.in_flight) < (1 if one_at_a_time else IN_FLIGHT_MAX)

    @property
    def is_idle(self) -> bool:
        """True if batches wait and none is in flight."""
        return bool(self.waiting) and not self.in_flight

    def note_written(self, batch: ProducerBatch) -> None:
        """Note that a batch is acknowledged."""
        self.known = True
        self.done.add(batch)
        self._forget_done()
        if not self.failed:
            self.failing_since_ms = None
            self.pause_ms = PAUSE_MS_FIRST

    def note_failed(self, batch: ProducerBatch) -> None:
        """Note that a batch in flight has failed, and has to be sent again."""
        self.in_flight.remove(batch)
        self._forget_done()
        self.failed.append(batch)
        self.last_failed = max(self.last_failed, batch.number)

    def may_heal(self, batch: ProducerBatch, code: int) -> bool:
        """Return True if another try may help.

        After a gap in the sequence numbers it may help if earlier batches have left that gap.
        """
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER:
            return any(one.number < batch.number for one in (*self.failed, *self.in_flight))
        return code in _MAY_HEAL

    def _forget_done(self) -> None:
        while self.in_flight and self.in_flight[0] in self.done:
            self.done.discard(self.in_flight.pop(0))

    def settle(self) -> None:
        """Once nothing is in flight, put the failed batches before those that wait."""
        if self.failed and not self.in_flight:
            self.failed.sort(key=lambda batch: batch.number)
            self.waiting.extendleft(reversed(self.failed))
            self.failed.clear()

    def failing_ms(self, now_ms: int) -> int:
        """Note that the partition fails now; return how long it has failed without a success."""
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        return now_ms - self.failing_since_ms

    def back_off(self, now_ms: int) -> None:
        """Wait before the next try, unless a wait is set already. Pauses double."""
        if self.retry_at_ms <= now_ms:
            self.retry_at_ms = now_ms + self.pause_ms
            self.pause_ms = min(2 * self.pause_ms, PAUSE_MS_MAX)


class UnacknowledgedBatches:
    """The batches of one writer that are not acknowledged."""

    def __init__(self, delivery_timeout_ms: int) -> None:
        """``delivery_timeout_ms`` limits how long a partition may go on failing."""
        self._delivery_timeout_ms = delivery_timeout_ms
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ready: dict[TopicPartition, None] = {}
        """The partitions with waiting batches, in the order in which they became ready."""
        self._failing: set[TopicPartition] = set()
        self.open_bytes = 0
        """The bytes of all unacknowledged batches."""
        self.records_written = 0

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch behind all others of its partition."""
        tp = batch.target.partition
        self._partitions.setdefault(tp, _Partition()).waiting.append(batch)
        self._ready[tp] = None
        self.open_bytes += batch.size

    def frames(
        self, leader_of: Callable[[TopicPartition], str | None], now_ms: int
    ) -> list[WriteFrame]:
        """Return the frames to send now. Their batches are in flight from then on.

        Raises:
            ClusterUnavailable: a partition has been without a leader for too long.
        """
        by_leader: dict[str, list[list[ProducerBatch]]] = {}
        for tp in list(self._ready):
            partition = self._partitions[tp]
            if not partition.can_send() or partition.retry_at_ms > now_ms:
                continue
            leader = leader_of(tp)
            if leader is None:
                self._fail(tp, "the partition has no leader", now_ms)
                continue
            while partition.can_send():
                batch = partition.waiting.popleft()
                partition.in_flight.append(batch)
                _pack(by_leader.setdefault(leader, []), batch)
            if not partition.waiting:
                del self._ready[tp]
        return [WriteFrame(leader, one) for leader, frames in by_leader.items() for one in frames]

    def answered(
        self, batch: ProducerBatch, outcome: BatchOutcome, leader: str, now_ms: int
    ) -> None:
        """Note the answer about a batch in flight.

        Raises:
            WriteRefused, RecordTooLarge: no retry can help.
            ClusterUnavailable: the delivery timeout is over.
        """
        tp = batch.target.partition
        partition = self._partitions[tp]
        if outcome.error_code == NONE:
            self._written(tp, partition, batch)
        else:
            if not partition.may_heal(batch, outcome.error_code):
                raise _refusal(batch, outcome)
            partition.note_failed(batch)
            reason = f"{leader}: {error_name(outcome.error_code)}"
            self._fail(tp, f"{reason}: {outcome.message}" if outcome.message else reason, now_ms)
        self._settle(tp)

    def lost(self, batches: Iterable[ProducerBatch], reason: str, now_ms: int) -> None:
        """Note that the stream of these batches is gone, and their answers with it.

        Raises:
            ClusterUnavailable: the delivery timeout is over.
        """
        for batch in batches:
            tp = batch.target.partition
            self._partitions[tp].note_failed(batch)
            self._fail(tp, reason, now_ms)
            self._settle(tp)

    def retry_at_ms(self) -> int | None:
        """Return when the first failed partition is to be tried again; None if none has failed."""
        failing = (self._partitions[tp] for tp in self._failing)
        return min((each.retry_at_ms for each in failing if each.is_idle), default=None)

    def failing(self) -> list[TopicPartition]:
        """Return the failed partitions. Their leaders should be looked up before the next try."""
        return sorted(self._failing)

    def _written(self, tp: TopicPartition, partition: _Partition, batch: ProducerBatch) -> None:
        self.open_bytes -= batch.size
        self.records_written += batch.count
        partition.note_written(batch)
        if not partition.failed:
            self._failing.discard(tp)

    def _settle(self, tp: TopicPartition) -> None:
        partition = self._partitions[tp]
        partition.settle()
        if partition.waiting:
            self._ready[tp] = None

    def _fail(self, tp: TopicPartition, reason: str, now_ms: int) -> None:
        partition = self._partitions[tp]
        self._failing.add(tp)
        failing_ms = partition.failing_ms(now_ms)
        if failing_ms >= self._delivery_timeout_ms:
            raise ClusterUnavailable(
                f"writing to topic {tp.topic} partition {tp.partition} fails for {failing_ms} ms "
                f"(kafka.delivery.timeout.ms): {reason}"
            )
        partition.back_off(now_ms)


def _pack(frames: list[list[ProducerBatch]], batch: ProducerBatch) -> None:
    """Put a batch into the last frame, or into a new one if there is no room for it."""
    if not frames or sum(each.size for each in frames[-1]) + batch.size > FRAME_BYTES:
        frames.append([])
    frames[-1].append(batch)


def _refusal(batch: ProducerBatch, outcome: BatchOutcome) -> Exception:
    tp = batch.target.partition
    text = (
        f"topic {tp.topic} partition {tp.partition} does not take a batch of {batch.count} records "
        f"({batch.size} bytes): {error_name(outcome.error_code)}: {outcome.message}"
    )
    return RecordTooLarge(text) if outcome.error_code == MESSAGE_TOO_LARGE else WriteRefused(text)
