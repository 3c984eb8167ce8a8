"""The transactions of one partition: a function of its log, on leaders and followers alike.

A transaction begins here with its producer's first transactional batch, and ends with that
producer's next marker. Readers of committed records can read up to the *last stable offset*, and
are told which transactions were aborted. Below it every transaction has ended, by a marker that is
itself committed, so that every later leader has it.

A marker that is truncated has not ended anything. A transaction that ended above the high watermark
is therefore kept with its first offset, and becomes open again when the log is truncated below its
marker. Of the transactions that ended below the high watermark only the aborted ones are kept. If a
log is truncated below its high watermark (unclean election), the caller searches the remaining log
and calls ``under_way_at``. This module is pure.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import CONTROL, TRANSACTIONAL, Batch
from quorate.broker.log.state.aborted_transactions import AbortedTransaction, AbortedTransactions
from quorate.broker.log.state.producer_state_manager import ProducerFields, ProducerStateManager
from quorate_proto.v1 import errors_pb2

NO_OFFSET = -1


class _Ended(NamedTuple):
    """A transaction whose marker, at ``last_offset``, may still be truncated."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The transactions of one partition."""

    __slots__ = ("_aborted", "_ongoing", "_where", "first_unstable", "settled_offset", "unsettled")

    def __init__(self, where: str) -> None:
        """``where`` names the partition in messages."""
        self._where = where
        self._ongoing: dict[int, int] = {}
        """The first offsets by producer id, in the order of the first offsets."""
        self.unsettled: deque[_Ended] | None = None
        """The transactions that ended above the high watermark, in the order in which they ended;
        None if there are none, so that there is nothing to ``settle``."""
        self._aborted: AbortedTransactions | None = None
        self.first_unstable = NO_OFFSET
        self.settled_offset = NO_OFFSET
        """The offset of the last committed marker that ended a transaction, so that where that
        transaction began is known no more; -1 if there was none."""

    @property
    def ongoing(self) -> Mapping[int, int]:
        """The first offsets of open transactions by producer id, in the order of the first
        offsets."""
        return self._ongoing

    def stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended for good, at most
        ``high_watermark``.

        It may lie below the start of the log, where an open transaction began.
        """
        first = self.first_unstable
        return high_watermark if first == NO_OFFSET else min(first, high_watermark)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records in [start, end), in the order in
        which they ended."""
        known = self._aborted
        return [] if known is None else known.overlapping(start_offset, end_offset)

    def check(self, batches: Sequence[Batch]) -> None:
        """Refuse a batch that a producer writes outside its open transaction, because no marker
        would cover it.

        Raises:
            KafkaError: INVALID_TXN_STATE.
        """
        begun: set[int] = set()
        for header, _ in batches:
            producer_id = header.producer_id
            if header.is_transactional:
                begun.add(producer_id)
            elif producer_id in self._ongoing or producer_id in begun:
                raise KafkaError(
                    errors_pb2.INVALID_TXN_STATE,
                    f"{self._where}: a batch of producer {producer_id} is not part of a "
                    "transaction, but one of that producer is under way here: end it first",
                )

    def record(self, producer_id: int, base_offset: int) -> None:
        """Record that the log has a transactional batch at ``base_offset``, after all that were
        recorded before."""
        if producer_id in self._ongoing:
            return
        self._ongoing[producer_id] = base_offset
        if self.first_unstable == NO_OFFSET:
            self.first_unstable = base_offset

    def record_marker(self, marker: EndMarker, offset: int) -> None:
        """Record that the log has this marker at ``offset``, after all that was recorded before."""
        first_offset = self._ongoing.pop(marker.producer_id, None)
        if first_offset is None:
            return
        if self.unsettled is None:
            self.unsettled = deque()
        self.unsettled.append(_Ended(marker.producer_id, first_offset, offset))
        if not marker.committed:
            if self._aborted is None:
                self._aborted = AbortedTransactions()
            stable_offset = next(iter(self._ongoing.values()), offset + 1)
            self._aborted.add(
                AbortedTransaction(marker.producer_id, first_offset, offset), stable_offset
            )

    def settle(self, high_watermark: int) -> None:
        """Record that the markers below ``high_watermark`` are committed."""
        ended = self.unsettled
        if ended is None or ended[0].last_offset >= high_watermark:
            return
        while ended and ended[0].last_offset < high_watermark:
            self.settled_offset = ended.popleft().last_offset
        if not ended:
            self.unsettled = None
        self._find_first_unstable()

    def can_truncate_to(self, end_offset: int) -> bool:
        """Return whether it is known which transactions will be open at ``end_offset``."""
        return end_offset > self.settled_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove what begins at or beyond ``end_offset``. This is only valid if ``can_truncate_to``
        allows it."""
        known = [
            (one.producer_id, one.first_offset, one.last_offset) for one in self.unsettled or ()
        ]
        known += [(each, first, end_offset) for each, first in self._ongoing.items()]
        self.under_way_at(
            end_offset,
            [(each, first) for each, first, last in known if last >= end_offset > first],
        )

    def under_way_at(self, end_offset: int, ongoing: Iterable[tuple[int, int]]) -> None:
        """Record that the log ends at ``end_offset`` and that these transactions (producer id,
        first offset) are open."""
        self._ongoing = dict(sorted(ongoing, key=lambda one: one[1]))
        kept = [one for one in self.unsettled or () if one.last_offset < end_offset]
        self.unsettled = deque(kept) if kept else None
        self.settled_offset = min(self.settled_offset, end_offset - 1)
        if self._aborted is not None:
            self._aborted.truncate(end_offset)
        self._find_first_unstable()

    def clear(self) -> None:
        """Remove all transactions, because the log was emptied and may continue anywhere."""
        self._ongoing = {}
        self.unsettled = self._aborted = None
        self.first_unstable = self.settled_offset = NO_OFFSET

    def forget_aborted_before(self, offset: int) -> None:
        """Remove the transactions that were aborted below ``offset``, because none of their records
        is left."""
        if self._aborted is not None:
            self._aborted.drop_before(offset)
            if not len(self._aborted):
                self._aborted = None

    def _find_first_unstable(self) -> None:
        ongoing = next(iter(self._ongoing.values()), None)
        ended = min((one.first_offset for one in self.unsettled or ()), default=None)
        known = [first for first in (ongoing, ended) if first is not None]
        self.first_unstable = min(known, default=NO_OFFSET)


def record_batch_state(
    producers: ProducerStateManager | None,
    transactions: PartitionTransactions,
    header: ProducerFields,
    base_offset: int,
    marker: EndMarker | None,
) -> None:
    """Update the producer state and the transactions of a log for a batch that it has.

    ``marker`` is the marker in a control batch that ends a transaction. ``producers`` is None where
    the producers are too old to matter.
    """
    if header.attributes & CONTROL:
        if marker is not None:
            transactions.record_marker(marker, base_offset)
            if producers is not None:
                producers.record_marker(marker, base_offset)
        return
    if header.attributes & TRANSACTIONAL:
        transactions.record(header.producer_id, base_offset)
    if producers is not None:
        producers.record(header, base_offset)
