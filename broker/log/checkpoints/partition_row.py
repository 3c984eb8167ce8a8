"""The row of a partition in the table of a store, and the truncations that change it."""

from typing import Final, NamedTuple

import msgspec


class PartitionRow(msgspec.Struct, frozen=True, array_like=True):
    """A partition of this store. ``number`` identifies it in every key and is never reused."""

    number: int
    topic_id: bytes
    partition: int
    topic: str
    log_start_offset: int = 0
    assigned_at: int = 0
    """The metadata offset at which this broker was assigned the partition, or 0 if it was not
    recorded."""
    placement: int = 0
    """The number of times that the replica was moved to another log folder. Of two logs, the one
    with the higher number counts."""
    is_future: bool = False
    """Whether it is the copy that a move makes, and does not count yet (KIP-113)."""


NO_SEGMENT: Final = 2**63
"""An id above every segment id: no segment holds a batch that the truncation removes."""
ANY_SEGMENT: Final = 0
"""An id below every segment id: any segment may hold an older version of a removed batch."""


class Truncation(NamedTuple):
    """The removal of all batches of a partition that begin at or beyond ``offset``.

    ``lowest_segment_id`` is the oldest segment that may hold one of them; sealed segments from
    there on need a truncation rule in the table. It is ``ANY_SEGMENT`` if batches were rewritten,
    and ``NO_SEGMENT`` if only the start of the log moves.

    ``log_start_offset`` is the new start of the log, or None if the start does not move.
    ``producers`` is the producer state from batches before the new start
    (``ProducerStateManager.pack_before``).
    """

    number: int
    offset: int
    lowest_segment_id: int
    log_start_offset: int | None = None
    producers: bytes = b""

    @property
    def moves_start_alone(self) -> bool:
        """Whether the truncation removes no batch and only moves the start of the log."""
        return self.lowest_segment_id == NO_SEGMENT
