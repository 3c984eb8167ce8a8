"""Cleaning a log in two walks: what is newest of each key, then the whole log without the rest.

The first walk covers what came since the last cleaning, as far as the map of keys has room; the
second one everything up to where the first one ended, in order. So after each cleaning every key is
once in the log up to there, and one that ended early has not lost a tombstone before the records
that it deletes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from broker.log.aborted_transactions import AbortedTransaction
from broker.log.codecs import UndecodableRecords
from broker.log.compaction.batch_cleaning import (
    CleanedBatch,
    Outcome,
    Times,
    clean_batch,
    clean_marker,
)
from broker.log.compaction.key_map import KeyMap
from broker.log.compaction.replacements import Replacement, Replacements
from broker.log.compaction.transactions import CleanedTransactions
from broker.log.record_batch import BatchHeader, read_header
from broker.log.records import plain_records, walk


class CleaningTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a cleaning is told before it begins.

    ``dirty_from``: the first offset that was never cleaned. ``pinned``: last offsets of batches
    that their producers may send again, and of markers that tell their epochs. ``key_bytes``:
    memory for the map of keys. ``aborted``: the transactions that were, as far as is cleaned.
    """

    dirty_from: int
    pinned: frozenset[int]
    now_ms: int
    delete_retention_ms: int
    key_bytes: int
    aborted: Sequence[AbortedTransaction] = ()


class LogCleaning:
    """One cleaning of one log. Batches come back to back, as the log has them, in order."""

    def __init__(self, task: CleaningTask) -> None:
        self.mapped_to = task.dirty_from
        """The first offset of which the first walk knows nothing: the second one ends there."""
        self._newest = KeyMap(task.key_bytes)
        self._times = Times(task.now_ms, task.delete_retention_ms)
        self._pinned = task.pinned
        self._transactions = CleanedTransactions(task.aborted)
        self._replacements = Replacements()

    def map(self, batches: bytes) -> bool:
        """The first walk, from ``dirty_from`` on. False: there is no room for more keys.

        Raises:
            UndecodableRecords: a producer wrote what nobody can read.
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
        """The second walk, from the start of the log to ``mapped_to``; returns what changes.

        Raises:
            UndecodableRecords: a producer wrote what nobody can read.
        """
        found: list[Replacement] = []
        for header, data in _batches(batches):
            with _naming(header):
                result = self._clean(header, data)
            found += self._replacements.add(header, result)
        return found

    def finish(self) -> list[Replacement]:
        """What changes at the end of the second walk."""
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
        if result.outcome is not Outcome.DEAD:
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
    """Say of which batch an error tells."""
    try:
        yield
    except UndecodableRecords as error:
        raise UndecodableRecords(f"batch at offset {header.base_offset}: {error}") from error
