"""Quantiles of the times that requests took between two measurements. Pure."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from quorate.common.metrics.family import BUCKETS_S

_BEYOND_S: Final = 2 * BUCKETS_S[-1]
"""Stands for the bucket that has no upper bound."""


def quantile_ms(before: Sequence[int], after: Sequence[int], quantile: float) -> float | None:
    """Return a quantile of what was counted since ``before``, in ms, or None if nothing was.

    It lies between the bounds of its bucket, in proportion, as Prometheus computes it.
    """
    counts = [now - then for now, then in zip(after, before, strict=True)]
    total = sum(counts)
    if total <= 0:
        return None
    rank = quantile * total
    for place, reached in enumerate(accumulate(counts)):
        if reached >= rank and counts[place]:
            low = BUCKETS_S[place - 1] if place else 0.0
            high = BUCKETS_S[place] if place < len(BUCKETS_S) else _BEYOND_S
            share = (rank - (reached - counts[place])) / counts[place]
            return 1_000 * (low + (high - low) * share)
    return None
