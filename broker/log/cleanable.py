"""How much of a log may be cleaned, and how much of that has not been."""

from typing import NamedTuple

from broker.log.batch_index import BatchIndex


class Cleanable(NamedTuple):
    """Offsets and bytes of a log. Clean: below ``dirty_from``; dirty: from there to ``end``.

    ``oldest_dirty_ms``: the greatest timestamp up to the first dirty batch. ``oldest_unsealed_ms``:
    the same of the first one that only waits for its segment to be sealed, of which there are
    ``unsealed_bytes``. -1: there is none.
    ``is_clean_sealed``: what is clean lies in sealed segments, too; what was written by the last
    cleaning, or copied forward, may not.
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
    """Of the batches in ``index``, those that end at or below ``up_to_offset``.

    ``cleaned_offset``: the first one that was never cleaned. ``newest_ms``: a batch with a greater
    timestamp is not cleaned, nor is what follows it; None: there is no such limit.
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
    """Position of the batch that contains or follows ``cleaned_offset``."""
    position = index.first_at_or_after(cleaned_offset)
    found = index.base_offset(position) if position < len(index) else log_end_offset
    return max(0, position - 1) if found > cleaned_offset else position
