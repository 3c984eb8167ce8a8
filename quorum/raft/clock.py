"""The one clock of a voter: the library's, which drifts away from that of ``time.monotonic``."""

from pysyncobj.monotonic import monotonic


def clock_s() -> float:
    """Seconds since some moment in the past; never goes back. From any thread."""
    return float(monotonic())
