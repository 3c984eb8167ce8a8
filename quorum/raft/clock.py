"""The clocks of a voter: the library's, which drifts away from that of ``time.monotonic``, and the
time of day.
"""

from time import time_ns

from pysyncobj.monotonic import monotonic


def clock_s() -> float:
    """Seconds since some moment in the past; never goes back. From any thread."""
    return float(monotonic())


def wall_clock_ms() -> int:
    """The time of day in ms since 1970, for people alone: nothing is ever decided by it."""
    return time_ns() // 1_000_000
