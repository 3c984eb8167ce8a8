"""Cleans a log in two passes: the first collects the newest offset of each key, the second removes
what is outdated.

The first pass covers what was appended since the last cleaning, as far as the offset map has room.
The second pass covers everything from the start of the log up to where the first one ended, in
order. After a cleaning each key is in the log once up to there. A cleaning that ends early has not
removed a tombstone before the records that it deletes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.batches.records import plain_records, walk
from quorate.broker.log.compaction.batch_cleaning import (
    CleanedBatch,
    CleaningOutcome,
    CleaningTimes,
    clean_batch,
    clean_marker,
)
from quorate.broker.log.compaction.offset_map import OffsetMap
from quorate.broker.log.compaction.replacements import Replacement, Replacements
from quorate.broker.log.compaction.transactions import CleanedTransactions
from quorate.broker.log.state.aborted_transactions import AbortedTransaction


class CleaningTask(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one cleaning.

    ``dirty_from`` is the first offset that was never cleaned. ``pinned`` has the last offsets of
    batches that their producers may send again, and the offsets of markers that determine producer
    epochs. ``key_bytes`` is the memory for the offset map. ``aborted`` has the aborted transactions
    in the part that is cleaned.
    """

    dirty_from: int
    pinned: frozenset[int]
    now_ms: int
    delete_retention_ms: int
    key_bytes: int
    aborted: Sequence[AbortedTransaction] = ()


class LogCleaning:
    """One cleaning of one log. It receives the batches in the order of the log, back to back."""

    def __init__(self, task: CleaningTask) -> None:
        self.mapped_to = task.dirty_from
        """The first offset that the first pass has not covered. The second pass ends there."""
        self._newest = OffsetMap(task.key_bytes)
        self._times = CleaningTimes(task.now_ms, task.delete_retention_ms)
        self._pinned = task.pinned
        self._transactions = CleanedTransactions(task.aborted)
        self._replacements = Replacements()

    def map(self, batches: bytes) -> bool:
        """Take batches of the first pass, which begins at ``dirty_from``. Return False if there is
        no room for more keys.

        Raises:
            UndecodableRecords: A producer wrote records that cannot be decoded.
        """
        for header, data in _batches(batches):
            counts = not header.is_control and not self._transactions.is_aborted(header)
            if counts and header.record_count:
                if not self._newest.has_room_for(header.record_count):
                    return False
                with _naming(header):
                    self._map(header, data)
            self.mapped_to = header.last_offset + 1
        return True

    def clean(self, batches: bytes) -> list[Replacement]:
        """Take batches of the second pass, from the start of the log to ``mapped_to``. Return the
        replacements that are complete.

        Raises:
            UndecodableRecords: A producer wrote records that cannot be decoded.
        """
        found: list[Replacement] = []
        for header, data in _batches(batches):
            with _naming(header):
                result = self._clean(header, data)
            found += self._replacements.add(header, result)
        return found

    def finish(self) -> list[Replacement]:
        """Return the last replacements, at the end of the second pass."""
        return self._replacements.end()

    def _clean(self, header: BatchHeader, data: memoryview) -> CleanedBatch:
        is_pinned = header.producer_id >= 0 and header.last_offset in self._pinned
        transactions = self._transactions
        if header.is_control:
            is_needed = transactions.is_marker_needed(header) or is_pinned
            return clean_marker(header, data, self._times, is_needed=is_needed)
        result = clean_batch(
            header,
            data,
            self._newest,
            self._times,
            is_pinned=is_pinned,
            is_aborted=transactions.is_aborted(header),
        )
        if result.outcome is not CleaningOutcome.DEAD:
            transactions.stays(read_header(result.data) if result.data else header)
        return result

    def _map(self, header: BatchHeader, data: memoryview) -> None:
        records, last_delta = plain_records(header, data), header.last_offset_delta
        base_offset, put = header.base_offset, self._newest.put
        for _, _, _, _, offset_delta, key_at, key_length, _ in walk(records, header.record_count):
            if not 0 <= offset_delta <= last_delta:
                raise UndecodableRecords(f"a record says it lies {offset_delta} behind the first")
            if key_length >= 0:
                put(records[key_at : key_at + key_length], base_offset + offset_delta)


def _batches(batches: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    view, at = memoryview(batches), 0
    while at < len(view):
        header = read_header(view[at:])
        yield header, view[at : at + header.size]
        at += header.size


@contextmanager
def _naming(header: BatchHeader) -> Iterator[None]:
    """Add to an error which batch it is about."""
    try:
        yield
    except UndecodableRecords as error:
        raise UndecodableRecords(f"batch at offset {header.base_offset}: {error}") from error
