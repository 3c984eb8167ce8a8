"""Formats numbers of bytes for people."""

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Format a number of bytes, as in 12.3 MB."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} B"
