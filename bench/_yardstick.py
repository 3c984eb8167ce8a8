"""A yardstick of the machine: three fixed pieces of work that no change to Quorate makes faster.

Figures of two runs compare where their yardsticks agree. Where one is worse, the machine was slower
or somebody else used it.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.processes import fdatasync_ms

_ROUNDS: Final = 5
_LOOPS: Final = 500_000
_COPIED_BYTES: Final = 64 << 20
_SYNCS: Final = 50


class Yardstick(NamedTuple):
    """Medians, so that a machine which is busy for most of a second shows it."""

    python_loop_ms: float
    """The time of a loop of 500,000 additions in plain Python, in ms."""
    memcpy_gb_per_s: float
    """The speed at which 64 MiB are copied from one buffer into another, in GB/s."""
    fdatasync_ms: float
    """The time to sync 4 KiB appended to a file where clusters keep their data, in ms."""

    def line(self) -> str:
        """The yardstick in one line, for people."""
        return (
            f"yardstick: Python loop {self.python_loop_ms:.1f} ms, "
            f"memcpy {self.memcpy_gb_per_s:.1f} GB/s, fdatasync {self.fdatasync_ms:.2f} ms"
        )


def measure_yardstick() -> Yardstick:
    """Measure this machine, as it is now. Takes about half a second."""
    source, target = bytes(_COPIED_BYTES), memoryview(bytearray(_COPIED_BYTES))

    def copy() -> None:
        target[:] = source

    copy()  # Makes the system hand out the pages of the target.
    copy_s = _median_s(copy)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
        return Yardstick(
            python_loop_ms=_median_s(_python_loop) * 1000,
            memcpy_gb_per_s=_COPIED_BYTES / copy_s / 1e9,
            fdatasync_ms=fdatasync_ms(Path(folder), _SYNCS),
        )


def _python_loop() -> int:
    total = 0
    for number in range(_LOOPS):
        total += number & 7
    return total


def _median_s(work: Callable[[], object]) -> float:
    durations_s = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - begin)
    return statistics.median(durations_s)
