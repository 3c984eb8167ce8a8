"""Lets a parallel run notice every worker that died.

pytest-xdist notices the end of a worker by the end of the pipe from it. A child that the worker
forked, and that outlived it, holds that pipe open: the run then waits for ever, without a word.
"""

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 5.0
"""A dead child that is still there at the second look has not been noticed."""

_PROC: Final = Path("/proc")


def watch_for_dead_workers() -> None:
    """Look for dead workers in the background, for as long as this process lives."""
    threading.Thread(target=_watch, name="dead-workers", daemon=True).start()


def _watch() -> None:
    dead_before: set[int] = set()
    while True:
        threading.Event().wait(LOOK_EVERY_S)
        dead = dead_children(os.getpid())
        if dead & dead_before:
            end_pipe_holders()
        dead_before = dead


def dead_children(pid: int) -> set[int]:
    """Return the children of ``pid`` that ended and were not waited for."""
    return {child for child, (parent, state) in _processes() if parent == pid and state == "Z"}


def end_pipe_holders() -> list[int]:
    """Kill the strangers that hold a pipe which this process reads, and return their pids.

    A stranger is a process that descends from this one no longer: its parent has died.
    """
    parents = {pid: parent for pid, (parent, _) in _processes()}
    pipes = set(_pipes_read_here())
    held = [
        pid
        for pid in parents
        if not _descends_from(os.getpid(), pid, parents) and pipes & _open_files(pid)
    ]
    for pid in held:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return held


def _descends_from(ancestor: int, pid: int, parents: dict[int, int]) -> bool:
    while pid not in (0, ancestor):
        pid = parents.get(pid, 0)
    return pid == ancestor


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield each process: its pid, its parent's pid and its state."""
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name before the last parenthesis may hold anything.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            yield int(entry.name), (int(parent), state)


def _pipes_read_here() -> Iterator[str]:
    for link in (_PROC / "self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            flags = fcntl.fcntl(int(link.name), fcntl.F_GETFL)
            if target.startswith("pipe:") and flags & os.O_ACCMODE == os.O_RDONLY:
                yield target


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(link))
    return found
