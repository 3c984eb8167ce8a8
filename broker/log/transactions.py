"""What one partition knows of transactions: a function of its log, on leaders and followers alike.

A transaction begins here with its producer's first transactional batch, and ends with that
producer's next marker. Whoever reads only what was committed gets as far as the *last stable
offset*, and is told what was aborted: below it, every transaction has ended, by a marker that is
committed itself, so that no other leader can lack it.

A marker that is cut off has not ended anything. So what ended above the high watermark is kept with
where it began, and begins to be under way again when the log is cut there. Of what ended below it,
only what was aborted is remembered: who cuts a log below its high watermark (an unclean election)
looks into what is left of it, and tells with ``under_way_at``. Pure.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.errors import KafkaError
from broker.log.aborted_transactions import AbortedTransaction, AbortedTransactions
from broker.log.control_batches import EndMarker
from broker.log.producers import Numbered, PartitionProducers
from broker.log.record_batch import CONTROL, TRANSACTIONAL, Batch
from quorate_proto.v1 import errors_pb2

NO_OFFSET = -1


class _Ended(NamedTuple):
    """A transaction whose marker, at ``last_offset``, may still be cut off."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The transactions of one partition."""

    __slots__ = ("_aborted", "_ended", "_first_unstable", "_ongoing", "_where", "settled_offset")

    def __init__(self, where: str) -> None:
        """``where`` names the partition in messages."""
        self._where = where
        self._ongoing: dict[int, int] = {}
        """Producer id → first offset, in the order of their first offsets."""
        self._ended: deque[_Ended] | None = None
        """Above the high watermark, in the order in which they ended; None: there are none."""
        self._aborted: AbortedTransactions | None = None
        self._first_unstable = NO_OFFSET
        self.settled_offset = NO_OFFSET
        """Of the last marker that ended a transaction and is committed, so that where that
        transaction began is known no more; -1: of none."""

    @property
    def ongoing(self) -> Mapping[int, int]:
        """Producer id → first offset of what was not ended, in the order of their first offsets."""
        return self._ongoing

    @property
    def aborted_count(self) -> int:
        """Aborted transactions that are remembered."""
        return 0 if self._aborted is None else len(self._aborted)

    def stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has ended for good; at most ``high_watermark``.

        May lie below the start of the log, where a transaction began that is not over.
        """
        first = self._first_unstable
        return high_watermark if first == NO_OFFSET else min(first, high_watermark)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that may have records in [start, end), in the order in which they ended."""
        known = self._aborted
        return [] if known is None else known.overlapping(start_offset, end_offset)

    def check(self, batches: Sequence[Batch]) -> None:
        """Refuse what a producer writes beside its transaction: no marker would cover it.

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
        """The log has a transactional batch, at ``base_offset``, behind all that was recorded."""
        if producer_id in self._ongoing:
            return
        self._ongoing[producer_id] = base_offset
        if self._first_unstable == NO_OFFSET:
            self._first_unstable = base_offset

    def record_marker(self, marker: EndMarker, offset: int) -> None:
        """The log has this marker, at ``offset``, behind all that was recorded before."""
        first_offset = self._ongoing.pop(marker.producer_id, None)
        if first_offset is None:
            return
        if self._ended is None:
            self._ended = deque()
        self._ended.append(_Ended(marker.producer_id, first_offset, offset))
        if not marker.committed:
            if self._aborted is None:
                self._aborted = AbortedTransactions()
            stable_offset = next(iter(self._ongoing.values()), offset + 1)
            self._aborted.add(
                AbortedTransaction(marker.producer_id, first_offset, offset), stable_offset
            )

    def settle(self, high_watermark: int) -> None:
        """Markers below ``high_watermark`` are committed."""
        ended = self._ended
        if ended is None or ended[0].last_offset >= high_watermark:
            return
        while ended and ended[0].last_offset < high_watermark:
            self.settled_offset = ended.popleft().last_offset
        if not ended:
            self._ended = None
        self._find_first_unstable()

    def can_truncate_to(self, end_offset: int) -> bool:
        """Whether what will be under way at ``end_offset`` is known here."""
        return end_offset > self.settled_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """What begins at or beyond ``end_offset`` is gone, as far as ``can_truncate_to``."""
        known = [(one.producer_id, one.first_offset, one.last_offset) for one in self._ended or ()]
        known += [(each, first, end_offset) for each, first in self._ongoing.items()]
        self.under_way_at(
            end_offset,
            [(each, first) for each, first, last in known if last >= end_offset > first],
        )

    def under_way_at(self, end_offset: int, ongoing: Iterable[tuple[int, int]]) -> None:
        """The log ends at ``end_offset``, and these (producer id, first offset) are under way."""
        self._ongoing = dict(sorted(ongoing, key=lambda one: one[1]))
        kept = [one for one in self._ended or () if one.last_offset < end_offset]
        self._ended = deque(kept) if kept else None
        self.settled_offset = min(self.settled_offset, end_offset - 1)
        if self._aborted is not None:
            self._aborted.truncate(end_offset)
        self._find_first_unstable()

    def clear(self) -> None:
        """The log was emptied, and may go on anywhere."""
        self._ongoing = {}
        self._ended = self._aborted = None
        self._first_unstable = self.settled_offset = NO_OFFSET

    def forget_aborted_before(self, offset: int) -> None:
        """No record is left of what was aborted below ``offset``."""
        if self._aborted is not None:
            self._aborted.drop_before(offset)
            if not len(self._aborted):
                self._aborted = None

    def _find_first_unstable(self) -> None:
        ongoing = next(iter(self._ongoing.values()), None)
        ended = min((one.first_offset for one in self._ended or ()), default=None)
        known = [first for first in (ongoing, ended) if first is not None]
        self._first_unstable = min(known, default=NO_OFFSET)


def take_note(
    producers: PartitionProducers | None,
    transactions: PartitionTransactions,
    header: Numbered,
    base_offset: int,
    marker: EndMarker | None,
) -> None:
    """What a log knows of its writers, now that it has this batch.

    ``marker``: what it says if it is a control batch that ends a transaction. ``producers``: None
    where they are too old to matter.
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
