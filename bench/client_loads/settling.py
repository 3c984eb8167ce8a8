"""Says when a system is warm, and how far the measurements of one row are apart."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

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
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        row[name] = statistics.median(values)
        if len(values) > 1:
            row[f"{name} range"] = f"{shown(min(values))} to {shown(max(values))}"
    return row


def shown(value: float) -> str:
    """Three significant digits, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
