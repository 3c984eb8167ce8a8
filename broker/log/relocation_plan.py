"""Which sealed segment is emptied next, so that the dead do not fill the disk. Decisions alone.

A segment goes as a whole, once nothing in it lives. Where logs are kept for different times, some
of it lives on while the rest is dead: what lives is copied forward then. That is worth it where
less than half lives, or where all that is dead, together, is too much for what lives: so that the
disk holds at most one and a half times what is kept, and the segments being written.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_DEAD_PERCENT: Final = 50
"""Of what lives: where more is dead, more is copied, and without rests."""


class Usage(NamedTuple):
    """Bytes of batches in a sealed segment: all of them, and those that live there alone."""

    segment_id: int
    stored_bytes: int
    live_bytes: int


class Step(NamedTuple):
    """The segment to empty. ``is_urgent``: the disk holds more than it should."""

    segment_id: int
    is_urgent: bool


def next_step(sealed: Iterable[Usage], live_elsewhere_bytes: int) -> Step | None:
    """The segment that gives most for what is to be copied; None: it is not worth it.

    ``live_elsewhere_bytes``: in the segment that is written. Of what is wholly dead nothing needs
    to be copied: it goes by itself.
    """
    alive = [usage for usage in sealed if usage.live_bytes]
    if not alive:
        return None
    live_bytes = live_elsewhere_bytes + sum(usage.live_bytes for usage in alive)
    dead_bytes = sum(usage.stored_bytes - usage.live_bytes for usage in alive)
    is_urgent = 100 * dead_bytes > _DEAD_PERCENT * live_bytes
    emptiest = min(alive, key=lambda usage: usage.live_bytes / usage.stored_bytes)
    is_mostly_dead = 2 * emptiest.live_bytes < emptiest.stored_bytes
    return Step(emptiest.segment_id, is_urgent) if is_mostly_dead or is_urgent else None


def should_roll(sealed: Sequence[Usage], live_elsewhere_bytes: int) -> bool:
    """Whether what was copied keeps too much from going, until its copies are durable."""
    live_bytes = live_elsewhere_bytes + sum(usage.live_bytes for usage in sealed)
    dead_bytes = sum(usage.stored_bytes - usage.live_bytes for usage in sealed)
    waits = any(not usage.live_bytes for usage in sealed)
    return waits and 100 * dead_bytes > _DEAD_PERCENT * live_bytes
