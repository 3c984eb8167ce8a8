"""Frames are received into memory the process already has."""

import resource
import subprocess
import sys

import pytest

from quorate.broker.common.allocation import keep_freed_memory

SCRIPT = """
import resource, sys
from quorate.broker.common.allocation import keep_freed_memory
assert keep_freed_memory()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3): frame = bytearray(4 << 20); del frame
before = faults()
for _ in range(20): frame = bytearray(4 << 20); del frame
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_large_frame_costs_no_page_faults_once_memory_was_used() -> None:
    pages_of_one_frame = (4 << 20) // resource.getpagesize()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < pages_of_one_frame


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not keep_freed_memory()
