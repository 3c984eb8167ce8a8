"""The clocks of a voter: the library's, which drifts away from ``time.monotonic``, and the time of
day.
"""

from time import time_ns

from pysyncobj.monotonic import monotonic


def clock_s() -> float:
    """Return seconds since some moment in the past. It never goes back; call it from any thread."""
    return float(monotonic())


def wall_clock_ms() -> int:
    """Return the time of day in ms since 1970. It is for people alone: nothing is ever decided by
    it.
    """
    return time_ns() // 1_000_000
