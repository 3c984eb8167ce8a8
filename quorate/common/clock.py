"""The clocks of a process, in whole milliseconds."""

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks that a process or a simulation has. All times are whole milliseconds."""

    def now_ms(self) -> int:
        """Return the monotonic clock: everything that waits goes by it."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since the epoch: timestamps of records go by it."""


def monotonic_ms() -> int:
    """Return the monotonic clock: everything in a broker that waits goes by it."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Return the milliseconds since the epoch: timestamps of records go by it."""
    return time.time_ns() // 1_000_000
