"""Reads a partition's batches one after the other, and keeps what they say of transactions.

Written down apart from the product, which keeps the same in indexes, through cuts at both ends and
restarts; whatever it says must be what follows from the batches that a replica has. Pure.
"""

from typing import NamedTuple

from quorate.broker.log.batches.control_batches import EndMarker, decode_marker
from quorate.broker.log.batches.record_batch import BatchHeader
from quorate.broker.log.options import Records
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import PartitionTransactions

_ANY_SEQUENCE = -2
_BEFORE_FIRST = -1


class Ended(NamedTuple):
    """A transaction and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class KnownProducer(NamedTuple):
    """The state of a producer, as its batches say."""

    epoch: int
    last_sequence: int
    coordinator_epoch: int = -1
    marker_offset: int = -1


class Replay:
    """The transactions and producers of the batches from ``start_offset`` on.

    ``is_whole``: nothing was ever cut off below or beyond them, so that the product knows no more
    and no less. A log that was cut at its end keeps the epochs of producers, one that was cut at
    its start the transactions that began below it.
    """

    def __init__(self, start_offset: int = 0, *, is_whole: bool = True) -> None:
        self.start_offset = self.end_offset = start_offset
        self._is_whole = is_whole
        self._ongoing: dict[int, int] = {}
        self._ended: list[Ended] = []
        self._producers: dict[int, KnownProducer] = {}

    def add(self, header: BatchHeader, batch: Records) -> None:
        """The next batch."""
        self.end_offset = header.last_offset + 1
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None:
                self._end(marker, header.base_offset)
            return
        if header.is_transactional:
            self._ongoing.setdefault(header.producer_id, header.base_offset)
        if header.producer_id >= 0:
            known = self._in_epoch(header.producer_id, header.producer_epoch)
            last_sequence = header.base_sequence + header.last_offset_delta
            self._producers[header.producer_id] = known._replace(last_sequence=last_sequence)

    def _end(self, marker: EndMarker, offset: int) -> None:
        producer_id = marker.producer_id
        first = self._ongoing.pop(producer_id, None)
        if first is not None:
            self._ended.append(Ended(producer_id, first, offset, marker.committed))
        known = self._in_epoch(producer_id, marker.producer_epoch)
        self._producers[producer_id] = known._replace(
            coordinator_epoch=marker.coordinator_epoch, marker_offset=offset
        )

    def _in_epoch(self, producer_id: int, epoch: int) -> KnownProducer:
        known = self._producers.get(producer_id)
        if known is None:
            return KnownProducer(epoch, _ANY_SEQUENCE)
        if known.epoch == epoch:
            return known
        return known._replace(epoch=epoch, last_sequence=_BEFORE_FIRST)

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: where the first transaction begins that has no marker
        below the high watermark, and at most the high watermark."""
        unstable = [one.first_offset for one in self._ended if one.last_offset >= high_watermark]
        return min([*self._ongoing.values(), *unstable, high_watermark])

    # -- comparisons; each says what is different, "" if nothing is --------------------------------

    def compare_stable_offset(self, stable: int, high_watermark: int, log_start_offset: int) -> str:
        """``stable``: what the replica shows to readers of what was committed."""
        expected = max(log_start_offset, self.stable_offset(high_watermark))
        if stable == expected or (not self._knows_all and stable < expected):
            return ""
        return f"its last stable offset is {stable}, its batches say {expected}"

    def compare_transactions(self, known: PartitionTransactions, log_start_offset: int) -> str:
        """Open ones, and the index of the aborted ones."""
        open_ones = dict(known.ongoing)
        if self._differ(set(open_ones.items()), set(self._ongoing.items())):
            return f"its open transactions are {open_ones}, its batches say {self._ongoing}"
        listed = known.aborted(log_start_offset, self.end_offset)
        expected: set[tuple[int, ...]] = {
            (one.producer_id, one.first_offset, one.last_offset)
            for one in self._ended
            if not one.committed and one.last_offset >= log_start_offset
        }
        if self._differ({tuple(one) for one in listed}, expected):
            return f"its aborted transactions are {listed}, its batches say {sorted(expected)}"
        return ""

    def compare_producers(self, known: ProducerStateManager) -> str:
        """Epochs, numbers, and who ended their last transactions."""
        for producer_id, expected in self._producers.items():
            found = known.get(producer_id)
            if found is None:
                return f"it does not know producer {producer_id}, its batches say {expected}"
            said = KnownProducer(
                found.epoch, found.last_sequence, found.coordinator_epoch, found.marker_offset
            )
            behind = (said.epoch, said.coordinator_epoch) < (
                expected.epoch,
                expected.coordinator_epoch,
            )
            if behind or (self._is_whole and said != expected):
                return f"it knows {said} of producer {producer_id}, its batches say {expected}"
        return ""

    @property
    def _knows_all(self) -> bool:
        return self.start_offset == 0

    def _differ(self, said: set[tuple[int, ...]], expected: set[tuple[int, ...]]) -> bool:
        """Whether they differ, except in transactions that began below the first batch that was
        read here."""
        if self._knows_all:
            return said != expected
        began_here = {one for one in said if one[1] >= self.start_offset}
        began_before = {one[0] for one in said - began_here}
        return not (began_here <= expected and {one[0] for one in expected - said} <= began_before)
