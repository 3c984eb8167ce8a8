"""Turns the outcome for each batch into replacements of batches in the log.

A removed batch leaves a range of offsets that another batch must cover. Successive removed batches
of one leader epoch become one empty batch. It must be of one epoch, because followers truncate by
the offsets where epochs begin. Batches that stay do not cover the ranges of removed ones: their
first or last offset would change, by which their producers' sequences are counted, and a follower
whose log ends inside the range could not continue.
"""

from typing import Final, NamedTuple

from quorate.broker.log.batches.empty_batches import empty_span, is_empty_span
from quorate.broker.log.batches.record_batch import BatchHeader
from quorate.broker.log.compaction.batch_cleaning import CleanedBatch, CleaningOutcome

LARGEST_SPAN: Final = 2**31
"""The most offsets that one batch may span, because the last offset delta is a signed 32-bit
number."""
_MOST_BYTES: Final = 1 << 20
_MOST_BATCHES: Final = 10_000


class Replacement(NamedTuple):
    """Batches that replace ``old`` and span the same offsets.

    ``old`` is (base offset, size) of successive batches of the log. ``new`` has whole batches.
    """

    old: list[tuple[int, int]]
    new: list[bytes]


class Replacements:
    """Collects the replacements in the order of the log. Batches that stay unchanged are not among
    them."""

    def __init__(self) -> None:
        self._run = _Run()

    def add(self, header: BatchHeader, result: CleanedBatch) -> list[Replacement]:
        """Add the outcome for the next batch. Return the replacements that are complete with it."""
        if result.outcome is CleaningOutcome.KEPT:
            return self.end()
        self._run.add(header, result)
        return self.end() if self._run.is_full else []

    def end(self) -> list[Replacement]:
        """Return the last replacement, which is still incomplete because no batch follows that
        could extend it."""
        run, self._run = self._run, _Run()
        return run.result()


class _Run:
    """Successive batches that all change."""

    def __init__(self) -> None:
        self._old: list[tuple[int, int]] = []
        self._new: list[bytes] = []
        self._new_bytes = 0
        self._dead: list[BatchHeader] = []
        self._changes = False

    @property
    def is_full(self) -> bool:
        return self._new_bytes >= _MOST_BYTES or len(self._old) >= _MOST_BATCHES

    def add(self, header: BatchHeader, result: CleanedBatch) -> None:
        if result.outcome is CleaningOutcome.REWRITTEN:
            self._append_empty_batch()
            self._append(result.data)
            self._changes = True
        else:
            if self._dead and not _in_one_span(self._dead[0], header):
                self._append_empty_batch()
            self._dead.append(header)
        self._old.append((header.base_offset, header.size))

    def result(self) -> list[Replacement]:
        """Return the replacement, or nothing if the batches were only empty spans already."""
        self._append_empty_batch()
        return [Replacement(self._old, self._new)] if self._changes else []

    def _append_empty_batch(self) -> None:
        """Append one empty batch for all batches that were removed since the last one that
        stayed."""
        if self._dead:
            first, last = self._dead[0], self._dead[-1]
            newest = max(header.max_timestamp for header in self._dead)
            self._append(empty_span(first, last.last_offset, newest))
            self._changes |= len(self._dead) > 1 or not is_empty_span(first)
            self._dead = []

    def _append(self, batch: bytes) -> None:
        self._new.append(batch)
        self._new_bytes += len(batch)


def _in_one_span(first: BatchHeader, header: BatchHeader) -> bool:
    return (
        header.leader_epoch == first.leader_epoch
        and header.last_offset - first.base_offset < LARGEST_SPAN
    )
