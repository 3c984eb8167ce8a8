"""Finding processes of the project that a test run left behind.

Every process started during a run inherits a mark in its environment, so that one that detached
itself (`quorate up --detach`) is found as well as a child.
"""

import contextlib
import os
import signal
from pathlib import Path

from tests.support.waiting import wait_until

MARK = "QUORATE_TEST_RUN"
_OURS = ("quorate", "quorum", "broker")


def survivors(mark: str) -> dict[int, str]:
    """Command lines, by pid, of the project's processes that carry ``mark``; without this one."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):
            if pid == os.getpid() or f"{MARK}={mark}\0".encode() not in _read(entry / "environ"):
                continue
            arguments = _read(entry / "cmdline").decode(errors="replace").split("\0")
            if _is_ours(arguments):
                found[pid] = " ".join(arguments).strip()
    return found


def servers(mark: str) -> int:
    """Return how many voters and brokers run that carry ``mark``."""
    return sum(
        " quorate.quorum " in line or " quorate.cli.main node " in line
        for line in survivors(mark).values()
    )


def wait_until_gone(mark: str, *, timeout_s: float) -> dict[int, str]:
    """Survivors after at most ``timeout_s``; a process that is just exiting gets that long."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not survivors(mark), "the end of all processes", timeout_s=timeout_s)
    return survivors(mark)


def kill_all(pids: dict[int, str]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_ours(arguments: list[str]) -> bool:
    modules = (argument.partition(".")[0] for argument in arguments if "/" not in argument)
    scripts = (Path(argument).name for argument in arguments[:2])
    return any(name in _OURS for name in (*modules, *scripts))


def _read(path: Path) -> bytes:
    return path.read_bytes()
