"""The clock of everything in a broker that waits: monotonic, in whole milliseconds."""

import time


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
