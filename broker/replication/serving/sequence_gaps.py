"""The sequences that producers miss in a partition because their batches were refused here.

A producer has several batches in flight. When the first is refused for a reason that passes, those
behind it may arrive after the reason has passed. They must not be appended before it, which a
leader that does not know the producer would do. And they must not be called out of order
(OUT_OF_ORDER_SEQUENCE_NUMBER): librdkafka then begins a new epoch in all partitions, and sends in
it what it does not know to be in the log. They are refused like the first one, NOT_ENOUGH_REPLICAS,
so that all are sent again in their order.

Each refusal is remembered for a time only: a producer that has given up on a batch, and goes on
without it, is told so then.

This module is pure.
"""

from typing import Final, NamedTuple, TypeVar

from quorate.broker.log.batches.record_batch import HEADER_BYTES, BatchHeader, read_header
from quorate.broker.log.options import Records
from quorate.broker.log.state.producer_state_manager import ProducerStateManager, precedes
from quorate.common.types import TopicPartition

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED_MS: Final = 30_000
"""The time for which a refusal explains a gap: the default request timeout of producers."""

PARTITIONS_MAX: Final = 10_000
PRODUCERS_MAX: Final = 100
"""The limits of what is remembered, per broker and per partition. The oldest go first."""

SEQUENCES_MAX: Final = 16
"""The refused sequences remembered of one producer, of which five may be in flight."""


class _Refused(NamedTuple):
    """The refused batches of one producer in one epoch."""

    epoch: int
    until_ms: dict[int, int]
    """The times until which each is remembered, by its first sequence, in the order of the
    refusals."""


class SequenceGaps:
    """Remembers refused batches, by partition and producer id."""

    __slots__ = ("by_partition",)

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, dict[int, _Refused]] = {}
        """It is empty as long as nothing is refused, and then nobody needs to ask."""

    def note(self, tp: TopicPartition, records: Records, now_ms: int) -> None:
        """Remember that these batches were refused, and that their producer may send them again."""
        if len(records) < HEADER_BYTES:
            return
        header = read_header(records)
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        producers = self.by_partition.pop(tp, {})
        refused = producers.pop(header.producer_id, None)
        if refused is None or refused.epoch != header.producer_epoch:
            refused = _Refused(header.producer_epoch, {})
        refused.until_ms.pop(header.base_sequence, None)
        refused.until_ms[header.base_sequence] = now_ms + REMEMBERED_MS
        producers[header.producer_id] = refused
        self.by_partition[tp] = producers
        _drop_oldest(refused.until_ms, SEQUENCES_MAX)
        _drop_oldest(producers, PRODUCERS_MAX)
        _drop_oldest(self.by_partition, PARTITIONS_MAX)

    def explain(
        self, tp: TopicPartition, records: Records, producers: ProducerStateManager, now_ms: int
    ) -> bool:
        """Say whether the batch is behind one that was refused and has not come again.

        ``producers`` are those of the partition. The batch is none that the log has.
        """
        noted = self.by_partition.get(tp)
        if noted is None or len(records) < HEADER_BYTES:
            return False
        header = read_header(records)
        refused = noted.get(header.producer_id)
        if refused is None:
            return False
        for sequence in [one for one, until_ms in refused.until_ms.items() if until_ms <= now_ms]:
            del refused.until_ms[sequence]
        if not refused.until_ms:
            self._forget(tp, header.producer_id)
            return False
        return refused.epoch == header.producer_epoch and _is_behind(header, refused, producers)

    def _forget(self, tp: TopicPartition, producer_id: int) -> None:
        del self.by_partition[tp][producer_id]
        if not self.by_partition[tp]:
            del self.by_partition[tp]


def _is_behind(header: BatchHeader, refused: _Refused, producers: ProducerStateManager) -> bool:
    """Say whether a refused batch is the next one of its producer, and this batch is a later one.

    If the producer is not known here, any batch would be appended: the first refused one is next.
    """
    expected = producers.expected_sequence(header)
    if expected is None:
        return any(precedes(one, header.base_sequence) for one in refused.until_ms)
    return expected in refused.until_ms and precedes(expected, header.base_sequence)


def _drop_oldest(entries: dict[Key, Value], limit: int) -> None:
    while len(entries) > limit:
        del entries[next(iter(entries))]
