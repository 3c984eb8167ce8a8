"""Frames are received into memory the process already has; LMDB's tables are not."""

import resource
import subprocess
import sys

import pytest

from quorate.common.allocation import ask_the_kernel_for_tables, keep_freed_memory

TABLES = """
import ctypes, resource, sys
from quorate.common import allocation
getattr(allocation, sys.argv[1])()
libc = ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
libc.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
libc.free(libc.calloc(1, 2 << 20))
before = faults()
libc.calloc(1, 2 << 20)
print(faults() - before)
"""

SCRIPT = """
import resource, sys
from quorate.common.allocation import keep_freed_memory
assert keep_freed_memory()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3): frame = bytearray(4 << 20); del frame
before = faults()
for _ in range(20): frame = bytearray(4 << 20); del frame
print(faults() - before)
"""
SHARING_SCRIPT = """
import resource, threading
from quorate.common.allocation import keep_freed_memory
assert keep_freed_memory(one_heap=True)
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use(): frame = bytearray(4 << 20); del frame
def use_in_thread(): thread = threading.Thread(target=use); thread.start(); thread.join()
for _ in range(3): use()
before = faults()
use_in_thread()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_large_frame_costs_no_page_faults_once_memory_was_used() -> None:
    pages_of_one_frame = (4 << 20) // resource.getpagesize()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < pages_of_one_frame


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("setting", "is_cleared"), [("ask_the_kernel_for_tables", False), ("keep_freed_memory", True)]
)
def test_a_table_costs_what_is_written_to_it(setting: str, is_cleared: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TABLES, setting],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    pages_of_a_table = (2 << 20) // resource.getpagesize()
    assert (int(done.stdout) > pages_of_a_table // 2) == is_cleared


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not keep_freed_memory()
    assert not ask_the_kernel_for_tables()


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_threads_that_share_a_heap_use_each_others_freed_memory() -> None:
    script = [sys.executable, "-c", SHARING_SCRIPT]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < (4 << 20) // resource.getpagesize()
