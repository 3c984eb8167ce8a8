"""From what becomes of each batch to what takes the place of what in the log.

A dead batch leaves a span of offsets that something must cover. Successive dead ones of one leader
epoch become one empty batch: of one epoch, because followers truncate by where epochs begin. Live
batches do not take them in, as their ends would move, which their producers' sequences are counted
by, and a follower whose log ends in between could not go on.
"""

from typing import Final, NamedTuple

from broker.log.compaction.batch_cleaning import CleanedBatch, Outcome
from broker.log.empty_batches import empty_span, is_empty_span
from broker.log.record_batch import BatchHeader

LARGEST_SPAN: Final = 2**31
"""Offsets of one batch: the last one's delta is a signed 32-bit number."""
_MOST_BYTES: Final = 1 << 20
_MOST_BATCHES: Final = 10_000


class Replacement(NamedTuple):
    """Batches that stand where ``old`` stood: together they span the same offsets.

    ``old``: (base offset, size) of successive batches of the log; ``new``: whole batches.
    """

    old: list[tuple[int, int]]
    new: list[bytes]


class Replacements:
    """What changes, in the order of the log; what is kept is in none of them."""

    def __init__(self) -> None:
        self._run = _Run()

    def add(self, header: BatchHeader, result: CleanedBatch) -> list[Replacement]:
        """Take note of the next batch; returns what is complete by it."""
        if result.outcome is Outcome.KEPT:
            return self.end()
        self._run.add(header, result)
        return self.end() if self._run.is_full else []

    def end(self) -> list[Replacement]:
        """What is not complete yet: no batch follows that it could go on with."""
        run, self._run = self._run, _Run()
        return run.result()


class _Run:
    """Successive batches, all of which change."""

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
        if result.outcome is Outcome.REWRITTEN:
            self._bury()
            self._append(result.data)
            self._changes = True
        else:
            if self._dead and not _in_one_span(self._dead[0], header):
                self._bury()
            self._dead.append(header)
        self._old.append((header.base_offset, header.size))

    def result(self) -> list[Replacement]:
        """Nothing if all of it is empty spans that were there before."""
        self._bury()
        return [Replacement(self._old, self._new)] if self._changes else []

    def _bury(self) -> None:
        """One empty batch for all that died since the last one that did not."""
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
