"""Determines which part of a log may be cleaned, and how much of that is dirty."""

from typing import NamedTuple

from quorate.broker.log.segments.batch_index import BatchIndex


class Cleanable(NamedTuple):
    """Offsets and bytes of a log. Offsets below ``dirty_from`` are clean, and those from there to
    ``end`` are dirty.

    ``oldest_dirty_ms`` is the greatest timestamp up to the first dirty batch.
    ``oldest_unsealed_ms`` is the same for the first batch that could be cleaned if its segment were
    sealed; there are ``unsealed_bytes`` of these. A time of -1 means that there is no such batch.

    ``is_clean_sealed`` means that the clean part is in sealed segments, too. Batches that the last
    cleaning wrote, or that were copied forward, may not be.
    """

    dirty_from: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int
    oldest_unsealed_ms: int
    unsealed_bytes: int
    is_clean_sealed: bool


def cleanable(
    index: BatchIndex,
    log_end_offset: int,
    cleaned_offset: int,
    up_to_offset: int,
    newest_ms: int | None,
) -> Cleanable:
    """Return the cleanable part of the batches that end at or below ``up_to_offset``.

    ``cleaned_offset`` is the first offset that was never cleaned. A batch with a timestamp above
    ``newest_ms`` is not cleaned, nor is anything after it. None means that there is no such limit.
    """
    limit = index.whole_batches_below(up_to_offset, log_end_offset)
    if newest_ms is not None:
        limit = min(limit, index.first_with_timestamp(newest_ms + 1))
    dirty = min(limit, _first_dirty(index, log_end_offset, cleaned_offset))
    sealed = index.first_unsealed(dirty, limit)
    end = index.base_offset(sealed) if sealed < len(index) else log_end_offset
    return Cleanable(
        dirty_from=index.base_offset(dirty) if dirty < sealed else end,
        end=end,
        clean_bytes=index.bytes_of(0, dirty),
        dirty_bytes=index.bytes_of(dirty, sealed),
        oldest_dirty_ms=index.greatest_timestamp(dirty) if dirty < sealed else -1,
        oldest_unsealed_ms=index.greatest_timestamp(sealed) if sealed < limit else -1,
        unsealed_bytes=index.bytes_of(sealed, limit),
        is_clean_sealed=index.first_unsealed(0, dirty) == dirty,
    )


def _first_dirty(index: BatchIndex, log_end_offset: int, cleaned_offset: int) -> int:
    """Return the position of the batch that contains or follows ``cleaned_offset``."""
    position = index.first_at_or_after(cleaned_offset)
    found = index.base_offset(position) if position < len(index) else log_end_offset
    return max(0, position - 1) if found > cleaned_offset else position
