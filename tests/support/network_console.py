"""Functions that run on a host of a ``NetworkLab``: a worker process inside its namespace.

with Console(lab.namespace(9)) as console:
    console.call(quorum_status, "10.20.0.1:7101")
"""

import ctypes
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_CLONE_NEWNET: Final = 0x4000_0000
_NAMESPACES: Final = Path("/run/netns")


class Console:
    """One worker process; calls run in it one after the other, its globals stay between them."""

    def __init__(self, namespace: str) -> None:
        # Spawned, not forked: gRPC's threads do not survive a fork.
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_enter,
            initargs=(namespace,),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(getattr(self._pool, "_processes", {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a module's function, called there."""
        return self.begin(function, *args, **kwargs).result(timeout=60)

    def begin(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call as ``call`` does, without waiting."""
        return self._pool.submit(function, *args, **kwargs)


def _enter(namespace: str) -> None:
    """Enter a namespace, before any thread is started: it belongs to a thread and those it
    starts."""
    descriptor = os.open(_NAMESPACES / namespace, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"cannot enter namespace {namespace}: {os.strerror(error)}")
    finally:
        os.close(descriptor)
