"""Where a share group begins with a partition that it has not read yet (KIP-932)."""

import re
from typing import Final

from quorate.broker.replication.api import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def reset_timestamp_ms(reset: str, now_wall_ms: int) -> int:
    """Return the timestamp by which the first offset is looked up: that of the first record that is
    no older than the duration, or a number that stands for the earliest or the latest offset."""
    if reset == EARLIEST:
        return EARLIEST_TIMESTAMP_MS
    found = _DURATION.fullmatch(reset.removeprefix(_BY_DURATION))
    if found is None:
        return LATEST_TIMESTAMP_MS
    ago_ms = sum(
        float(number or 0) * unit for number, unit in zip(found.groups(), _UNITS_MS, strict=True)
    )
    return max(0, now_wall_ms - int(ago_ms))
