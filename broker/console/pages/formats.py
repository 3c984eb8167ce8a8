"""Numbers, sizes and times as people read them. Pure."""

import math
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
UNKNOWN: Final = "—"
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def number(value: float | None) -> str:
    """Return a count with narrow spaces between thousands."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:,.0f}".replace(",", "\u202f")


def short_number(value: float | None) -> str:
    """Return a count in three digits: 1.24 M."""
    if value is None or math.isnan(value):
        return UNKNOWN
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}\u202f{unit}"
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


def size(value: float | None) -> str:
    """Return a size in bytes with a decimal unit."""
    if value is None or math.isnan(value) or value < 0:
        return UNKNOWN
    amount = float(value)
    for unit in _UNITS:
        if amount < 1_000 or unit == _UNITS[-1]:
            break
        amount /= 1_000
    return f"{amount:.3g}\u202f{unit}" if unit != "B" else f"{amount:.0f}\u202fB"


def rate(value: float | None) -> str:
    """Return a size per second."""
    known = value is not None and not math.isnan(value)
    return f"{size(value)}/s" if known else UNKNOWN


def milliseconds(value: float | None) -> str:
    """Return a short time."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value < 10:
        return f"{value:.1f}\u202fms"
    return f"{value:.0f}\u202fms" if value < _SECOND_MS else f"{value / 1000:.1f}\u202fs"


def duration(ms: float) -> str:
    """Return a length of time in its largest unit: 3 h."""
    for limit, unit in ((_DAY_MS, "d"), (_HOUR_MS, "h"), (_MINUTE_MS, "min"), (_SECOND_MS, "s")):
        if ms >= limit:
            return f"{ms / limit:.0f}\u202f{unit}"
    return f"{ms:.0f}\u202fms"


def when(ms: int) -> str:
    """Return a moment in UTC to the second, or that it is unknown."""
    if ms <= 0:
        return UNKNOWN
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def precise(ms: int) -> str:
    """Return a moment in UTC to the millisecond."""
    if not 0 < ms < 253_402_300_800_000:
        return UNKNOWN
    moment = datetime.fromtimestamp(ms // 1_000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1_000:03d}"


def count(amount: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 broker, 2 brokers."""
    return f"{number(amount)} {one if amount == 1 else many or one + 's'}"
