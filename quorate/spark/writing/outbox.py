"""What is written but not acknowledged: pure, told what happened and asked what to send.

Of each partition some batches are under way, in order. What fails and may be healed is sent again,
in order, once the answers to all that were under way are there. The broker tells repeated batches
by their sequence, so nothing is written twice; it remembers the last five of a partition, so no
more are under way at once, and batches that failed go one at a time, so that none is written behind
them meanwhile that would make it forget. The very first goes alone, too: a broker that knows
nothing of a producer takes whichever batch comes first, and a second one must not overtake it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorate.spark.call_errors import RETRIABLE, error_name
from quorate.spark.errors import ClusterUnavailable, RecordTooLarge, WriteRefused
from quorate.spark.ranges import TopicPartition
from quorate.spark.writing.batches import Batch
from quorate_proto.v1.errors_pb2 import (
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)

UNDER_WAY_MAX: Final = 5
"""Batches of one partition: as many as a broker recognises when they come again."""
FRAME_BYTES: Final = 1 << 20
"""A frame is closed once it holds as much."""
PAUSE_MS_FIRST: Final = 100
PAUSE_MS_MAX: Final = 1_000

_MAY_HEAL: Final = RETRIABLE | {NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND}


class Frame(NamedTuple):
    """Batches that go to one leader together."""

    leader: str
    batches: Sequence[Batch]


class Outcome(NamedTuple):
    """What a leader says of a batch: a Kafka error code, and why."""

    error_code: int
    message: str = ""


@dataclass(slots=True)
class _Partition:
    """Batches of one partition that are not acknowledged, in order of their sequences."""

    waiting: deque[Batch] = field(default_factory=deque)
    under_way: list[Batch] = field(default_factory=list)
    """From the first that is not answered on; those behind it may be."""
    done: set[Batch] = field(default_factory=set)
    """Those under way that are acknowledged."""
    failed: list[Batch] = field(default_factory=list)
    """Were under way; to be sent again once nothing is."""
    failing_since_ms: int | None = None
    retry_at_ms: int = 0
    pause_ms: int = PAUSE_MS_FIRST
    known: bool = False
    """Whether the leader has taken any batch of this writer."""
    last_failed: int = 0
    """The highest number of a batch that failed."""

    def can_send(self) -> bool:
        """Whether the next batch may go."""
        if not self.waiting or self.failed:
            return False
        first = self.under_way[0] if self.under_way else self.waiting[0]
        one_at_a_time = not self.known or first.number <= self.last_failed
        return len(self.under_way) < (1 if one_at_a_time else UNDER_WAY_MAX)

    @property
    def is_idle(self) -> bool:
        """Whether something waits and nothing is under way."""
        return bool(self.waiting) and not self.under_way

    def note_written(self, batch: Batch) -> None:
        """It is acknowledged."""
        self.known = True
        self.done.add(batch)
        self._forget_done()

    def note_failed(self, batch: Batch) -> None:
        """It was under way, and goes again."""
        self.under_way.remove(batch)
        self._forget_done()
        self.failed.append(batch)
        self.last_failed = max(self.last_failed, batch.number)

    def may_heal(self, batch: Batch, code: int) -> bool:
        """Whether another try may help. A gap must be one that batches before it have left."""
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER:
            return any(one.number < batch.number for one in (*self.failed, *self.under_way))
        return code in _MAY_HEAL

    def _forget_done(self) -> None:
        while self.under_way and self.under_way[0] in self.done:
            self.done.discard(self.under_way.pop(0))

    def settle(self) -> None:
        """Line up what failed, before what waits, once nothing is under way."""
        if self.failed and not self.under_way:
            self.failed.sort(key=lambda batch: batch.number)
            self.waiting.extendleft(reversed(self.failed))
            self.failed.clear()


class Outbox:
    """The batches of one writer."""

    def __init__(self, delivery_timeout_ms: int) -> None:
        """``delivery_timeout_ms``: how long a partition may go on failing without a success."""
        self._delivery_timeout_ms = delivery_timeout_ms
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ready: dict[TopicPartition, None] = {}
        """In the order in which they became so."""
        self._failing: set[TopicPartition] = set()
        self.open_bytes = 0
        """Of all batches that are not acknowledged."""
        self.records_written = 0

    def add(self, batch: Batch) -> None:
        """A batch behind all others of its partition."""
        tp = batch.target.partition
        self._partitions.setdefault(tp, _Partition()).waiting.append(batch)
        self._ready[tp] = None
        self.open_bytes += batch.size

    def frames(self, leader_of: Callable[[TopicPartition], str | None], now_ms: int) -> list[Frame]:
        """What to send now; it is under way from then on.

        Raises:
            ClusterUnavailable: a partition is without leader for too long.
        """
        by_leader: dict[str, list[list[Batch]]] = {}
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
                partition.under_way.append(batch)
                _pack(by_leader.setdefault(leader, []), batch)
            if not partition.waiting:
                del self._ready[tp]
        return [Frame(leader, one) for leader, frames in by_leader.items() for one in frames]

    def answered(self, batch: Batch, outcome: Outcome, leader: str, now_ms: int) -> None:
        """What became of a batch that was under way.

        Raises:
            WriteRefused, RecordTooLarge: no retry will heal it.
            ClusterUnavailable: it was tried for as long as is allowed.
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

    def lost(self, batches: Iterable[Batch], reason: str, now_ms: int) -> None:
        """The stream on which these were under way is gone, and their answers with it.

        Raises:
            ClusterUnavailable: they were tried for as long as is allowed.
        """
        for batch in batches:
            tp = batch.target.partition
            self._partitions[tp].note_failed(batch)
            self._fail(tp, reason, now_ms)
            self._settle(tp)

    def retry_at_ms(self) -> int | None:
        """When a partition that failed is to be tried again; None: there is none."""
        failing = (self._partitions[tp] for tp in self._failing)
        return min((each.retry_at_ms for each in failing if each.is_idle), default=None)

    def failing(self) -> list[TopicPartition]:
        """Partitions whose leader should be asked for before they are tried again."""
        return sorted(self._failing)

    def _written(self, tp: TopicPartition, partition: _Partition, batch: Batch) -> None:
        self.open_bytes -= batch.size
        self.records_written += batch.count
        partition.note_written(batch)
        if not partition.failed:
            self._failing.discard(tp)
            partition.failing_since_ms = None
            partition.pause_ms = PAUSE_MS_FIRST

    def _settle(self, tp: TopicPartition) -> None:
        partition = self._partitions[tp]
        partition.settle()
        if partition.waiting:
            self._ready[tp] = None

    def _fail(self, tp: TopicPartition, reason: str, now_ms: int) -> None:
        partition = self._partitions[tp]
        self._failing.add(tp)
        if partition.failing_since_ms is None:
            partition.failing_since_ms = now_ms
        failing_ms = now_ms - partition.failing_since_ms
        if failing_ms >= self._delivery_timeout_ms:
            raise ClusterUnavailable(
                f"writing to topic {tp.topic} partition {tp.partition} fails for {failing_ms} ms "
                f"(kafka.delivery.timeout.ms): {reason}"
            )
        if partition.retry_at_ms <= now_ms:
            partition.retry_at_ms = now_ms + partition.pause_ms
            partition.pause_ms = min(2 * partition.pause_ms, PAUSE_MS_MAX)


def _pack(frames: list[list[Batch]], batch: Batch) -> None:
    """Into the last frame while there is room for more."""
    if not frames or sum(each.size for each in frames[-1]) + batch.size > FRAME_BYTES:
        frames.append([])
    frames[-1].append(batch)


def _refusal(batch: Batch, outcome: Outcome) -> Exception:
    tp = batch.target.partition
    text = (
        f"topic {tp.topic} partition {tp.partition} does not take a batch of {batch.count} records "
        f"({batch.size} bytes): {error_name(outcome.error_code)}: {outcome.message}"
    )
    return RecordTooLarge(text) if outcome.error_code == MESSAGE_TOO_LARGE else WriteRefused(text)
