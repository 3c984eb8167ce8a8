"""From what becomes of each batch to what takes the place of what in the log.

A dead batch leaves a span of offsets that something must cover. Successive dead ones of one leader
epoch become one empty batch: of one epoch, because followers truncate by where epochs begin. Live
batches do not take them in, as their ends would move, which their producers' sequences are counted
by, and a follower whose log ends in between could not go on.
"""

from collections.abc import Iterable, Iterator
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


def replacements(
    cleaned: Iterable[tuple[BatchHeader, CleanedBatch]],
) -> Iterator[Replacement]:
    """What changes, in the order of the log; what is kept is in none of them."""
    run = _Run()
    for header, result in cleaned:
        if result.outcome is Outcome.KEPT:
            yield from run.end()
            continue
        run.add(header, result)
        if run.is_full:
            yield from run.end()
    yield from run.end()


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

    def end(self) -> Iterator[Replacement]:
        """What was gathered; nothing if all of it is empty spans that were there before."""
        self._bury()
        if self._changes:
            yield Replacement(self._old, self._new)
        self._old, self._new, self._new_bytes, self._changes = [], [], 0, False

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
