"""Says when a system is warm, and how far the measurements of one row are apart."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench._support import median_row, shown

_CLOSE: Final = 0.05


class Round(NamedTuple):
    """One round of the load that warms a system up."""

    gigabytes: float
    cpu_s_per_gb: float


def is_warm(rounds: Sequence[Round], least_gigabytes: float) -> bool:
    """Whether so much was produced, and the last two rounds cost the same to within 5 %.

    The servers' CPU time is compared, and not the throughput: it is what Java's compiling changes,
    and others on the machine change it least.
    """
    if len(rounds) < 2 or sum(each.gigabytes for each in rounds) < least_gigabytes:
        return False
    one, other = sorted(each.cpu_s_per_gb for each in rounds[-2:])
    return other <= one * (1 + _CLOSE)


def medians_and_spreads(samples: Sequence[Mapping[str, float]]) -> dict[str, float | str]:
    """The median of every figure; beside it, if there are several, the least and the greatest."""
    row: dict[str, float | str] = {}
    for name, median in median_row(samples).items():
        values = [sample[name] for sample in samples]
        row[name] = median
        if len(values) > 1:
            row[f"{name} range"] = f"{shown(min(values))} to {shown(max(values))}"
    return row
