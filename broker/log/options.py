"""The options of a log store, and the results that its logs return."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

Flush = Literal["sync", "os"]
"""``sync`` fsyncs before a batch is acknowledged. ``os`` only writes; a power loss loses the active
segment."""

Records = bytes | memoryview
"""Record batches of format v2, back to back."""

LARGEST_BATCH_BYTES: Final = 256 << 20
"""The largest batch that is stored, even from a leader. It bounds the size of one commit."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a log store. Sizes are in bytes."""

    flush: Flush = "sync"
    segment_bytes: int = 256 << 20
    """The size at which a segment is sealed and the next one begun."""
    max_batch_bytes: int = 8 << 20
    """The largest batch that a producer may send (``message.max.bytes``)."""
    group_bytes: int = 1 << 20
    """The approximate size of one commit. A larger commit only adds latency."""
    tail_bytes: int = 64 << 20
    """The size of the memory tail, which holds the newest batches for followers. Unflushed batches
    stay whatever their size."""
    max_pending_bytes: int = 32 << 20
    """The size of unflushed batches above which ``LogWriter.wait_for_room`` waits."""
    reserve_bytes: int = 16 << 20
    """The disk space reserved for the operations that free space once the disk is full."""
    producer_expiration_ms: int = 86_400_000
    """The time after which an idle producer is forgotten, in milliseconds."""
    incarnation_id: bytes = b""
    """The id of the broker process, which the folder remembers. It is empty for a tool."""


class LogAppendInfo(NamedTuple):
    """The offsets that records got.

    ``log_append_time_ms`` is the timestamp of all of them, or -1 if they keep their producer's
    timestamps.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1


class LogRead(NamedTuple):
    """Whole batches, in order. A batch may consist of several chunks.

    ``next_offset`` is the first offset after them, or the requested offset if there are none.
    """

    chunks: Sequence[Records]
    next_offset: int
    size: int


class ColdRead(Exception):
    """Raised when the requested batches are only on disk. The caller awaits ``load()`` and reads
    again.

    ``size`` is the number of bytes of records that were requested.
    """

    def __init__(self, size: int, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"{size} bytes are not in the page cache")
        self.size = size
        self.load = load
