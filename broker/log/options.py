"""What a log store is told when it opens, and what its partitions answer."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

Flush = Literal["sync", "os"]
"""``sync``: acknowledged = fsynced. ``os``: written; a power loss loses the active segment."""

Records = bytes | memoryview
"""Record batches v2, back to back."""

LARGEST_BATCH_BYTES: Final = 256 << 20
"""No batch above this is stored, whatever a leader sends: it bounds what one commit can take."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store keeps its logs; sizes in bytes."""

    flush: Flush = "sync"
    segment_bytes: int = 256 << 20
    """A segment of this size is sealed and the next one begun."""
    max_batch_bytes: int = 8 << 20
    """Largest batch a producer may send (``message.max.bytes``)."""
    group_bytes: int = 1 << 20
    """A commit takes about this much at once: more only adds latency."""
    tail_bytes: int = 64 << 20
    """Newest batches kept in memory for followers; unflushed ones stay whatever their size."""
    max_pending_bytes: int = 32 << 20
    """Unflushed bytes above which ``LogStore.wait_for_room`` waits."""
    reserve_bytes: int = 16 << 20
    """Blocks of the disk that are kept for what makes room once it is full."""
    producer_expiration_ms: int = 86_400_000
    """Producers that were silent for so long are forgotten."""


class Appended(NamedTuple):
    """Where records went. ``log_append_time_ms``: the time they have all; -1: their producer's."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1


class LogRead(NamedTuple):
    """Whole batches, in order; a batch may span several chunks.

    ``next_offset`` is the first offset beyond them, or the offset asked for if there are none.
    """

    chunks: Sequence[Records]
    next_offset: int
    size: int
