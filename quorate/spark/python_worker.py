"""Adapts the Python worker that Spark runs a task in: its memory, and how it ends.

A worker runs one task after another. What is set here for good suits every task; what only the
source may do is undone before Spark's own code goes on.
"""

import functools
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quorate.common.allocation import keep_freed_memory

REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
"""The environment variable that Spark sets for workers that run one task after another."""


@functools.cache
def prepare_worker() -> None:
    """Keep freed memory, and exclude the imported modules from garbage collection.

    This is done once per worker process, before gRPC starts its threads.

    A frame is received by a thread of gRPC and freed by the decoder. Where each thread has a heap
    of its own that returns memory to the kernel, every frame costs the page faults of all its
    pages: a third of the worker's CPU time.

    Spark collects all garbage after every task, and would look each time at objects that only the
    end of the process frees. That takes 35 ms, as long as decoding a million records.
    """
    if os.environ.get(REUSED_WORKER):
        keep_freed_memory(one_heap=True)
        gc.freeze()


@contextmanager
def until_closed() -> Iterator[None]:
    """End this process without a word if Spark closes the connection meanwhile; for one yield.

    A query with LIMIT has its rows before the source has handed out its last one, and Spark then
    closes the worker's connection. The next write fails, and Spark's daemon prints the tracebacks
    of a query that has succeeded. Within this context the worker ends as a program ends whose pipe
    nobody reads: by SIGPIPE. gRPC's own writes raise no such signal.

    It does nothing outside of Spark's workers.
    """
    if (
        not os.environ.get(REUSED_WORKER)
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _in_main_thread() -> bool:
    """Return True in the only thread that may change what a signal does."""
    return threading.current_thread() is threading.main_thread()
