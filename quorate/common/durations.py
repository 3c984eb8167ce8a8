"""Durations as people write them.

This is a module of its own because every Python worker of Spark imports it. The configuration
module needs msgspec, whose import takes far longer than all the rest.
"""

from typing import Final

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """Parse ``500ms``, ``30s``, ``10m``, ``2h`` or ``1d``; a bare number is ms, as in Spark.

    Raises:
        ValueError: anything else.
    """
    digits = text.rstrip("dhimns ")
    unit = text[len(digits) :].strip() or "ms"
    if not (digits.isascii() and digits.isdecimal()) or unit not in _UNIT_MS:
        raise ValueError(text)
    return int(digits) * _UNIT_MS[unit]
