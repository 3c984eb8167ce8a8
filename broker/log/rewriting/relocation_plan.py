"""Chooses the sealed segment to empty next, so that dead batches do not fill the disk.

The code here only decides.

A segment is deleted as a whole, once it holds no live batch. Where logs have different retention
times, some batches of a segment are live while the rest are dead. The live ones are then copied
forward. That is worth it where less than half of a segment is live, or where the dead bytes of all
segments are too many in relation to the live ones. The disk then holds at most one and a half times
the live bytes, and the segments being written.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_DEAD_PERCENT: Final = 50
"""The dead bytes in percent of the live ones above which segments with more live batches are
emptied too, and without pauses."""


class SegmentUsage(NamedTuple):
    """The bytes of batches in a sealed segment: all of them, and those that are live only there."""

    segment_id: int
    stored_bytes: int
    live_bytes: int


class RelocationStep(NamedTuple):
    """The segment to empty. ``is_urgent`` means that the disk holds more than it should."""

    segment_id: int
    is_urgent: bool


def next_step(sealed: Iterable[SegmentUsage], live_elsewhere_bytes: int) -> RelocationStep | None:
    """Return the segment whose emptying frees the most for what has to be copied, or None if it is
    not worth it.

    ``live_elsewhere_bytes`` are the live bytes in the active segment. A segment without live
    batches is not chosen, because it is deleted without copying.
    """
    alive = [usage for usage in sealed if usage.live_bytes]
    if not alive:
        return None
    live_bytes = live_elsewhere_bytes + sum(usage.live_bytes for usage in alive)
    dead_bytes = sum(usage.stored_bytes - usage.live_bytes for usage in alive)
    is_urgent = 100 * dead_bytes > _DEAD_PERCENT * live_bytes
    emptiest = min(alive, key=lambda usage: usage.live_bytes / usage.stored_bytes)
    is_mostly_dead = 2 * emptiest.live_bytes < emptiest.stored_bytes
    return RelocationStep(emptiest.segment_id, is_urgent) if is_mostly_dead or is_urgent else None


def should_roll(sealed: Sequence[SegmentUsage], live_elsewhere_bytes: int) -> bool:
    """Return whether the old versions of copied batches take too much space until their copies are
    durable."""
    live_bytes = live_elsewhere_bytes + sum(usage.live_bytes for usage in sealed)
    dead_bytes = sum(usage.stored_bytes - usage.live_bytes for usage in sealed)
    waits = any(not usage.live_bytes for usage in sealed)
    return waits and 100 * dead_bytes > _DEAD_PERCENT * live_bytes
