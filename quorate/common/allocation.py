"""Memory allocation of large buffers, without page faults for each of them.

By default glibc asks the kernel for every allocation above 128 KiB and returns it when it is freed,
so each frame of 1 MiB costs 256 page faults. This was measured as two thirds of the cost of
receiving the frame (470 against 1390 MB/s). With the settings here, allocations above 32 MiB still
come from the kernel, and free memory above 256 MiB is still returned.

LMDB takes 3 MiB of tables per file that it opens for writing, and writes to few of their pages.
From the kernel they are zero, and cost what is written. From memory that was used before, 2 MiB of
them are cleared first. So a broker opens its log before it keeps what is freed.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_KEPT_FREE_BYTES: Final = 256 << 20
_FROM_HEAP_BYTES: Final = 32 << 20
"""The largest threshold that glibc accepts."""
_TABLE_BYTES: Final = 1 << 20
"""The smaller of LMDB's two tables."""


def return_freed_memory() -> bool:
    """Return freed memory to the kernel, wherever in the heap it lies. The more there is, the
    longer it takes. The result is False if nothing was returned.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def ask_the_kernel_for_tables() -> bool:
    """Make the C library take every large allocation from the kernel, and return it when it is
    freed, however large those were that were freed before. Call it before the log is opened. The
    result is False if the C library has no such setting.
    """
    return _set(_M_MMAP_THRESHOLD, _TABLE_BYTES)


def keep_freed_memory(*, one_heap: bool = False) -> bool:
    """Make the C library keep freed memory. Call it once, when a broker has opened its log.

    Args:
        one_heap: all threads that start later share one heap, so that what one of them frees serves
            the others. It suits a few threads that hand large buffers on to each other.

    Returns:
        False if the C library has no such setting.
    """
    return (
        _set(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        and _set(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)
        and (not one_heap or _set(_M_ARENA_MAX, 1))
    )


def _set(setting: int, value: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(setting, value))
