"""The processes of a local cluster: started detached, recognised by command line, stopped by pid.

A pid alone proves nothing, because after a crash or a reboot another process may have it. A process
is ours only if its command line holds the absolute path of the node's configuration file.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from quorate.common.files.private_files import FILE_MODE, make_private_folder

if TYPE_CHECKING:
    from quorate.cluster.layout import Node

POLL_INTERVAL_MS: Final = 20


EXIT_WITH_PARENT: Final = "--exit-with-parent"


def command_line(node: "Node", python: str, *, attached: bool) -> list[str]:
    """Return the command line that starts the node with this Python.

    ``-P`` prevents the import of a folder ``broker`` in the current directory.
    """
    module = ["-P", "-m", "quorate.cli.main"]
    command = [python, *module, "node", node.kind, "--config", str(node.config_path)]
    return [*command, EXIT_WITH_PARENT] if attached else command


class ChildProcess(Protocol):
    """A process that a cluster started, with the part of ``subprocess.Popen`` that it uses."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Spawner(Protocol):
    """Starts the process of a node with a Python: ``spawn``, or what a test puts in its place."""

    def __call__(self, node: "Node", python: str, *, attached: bool) -> ChildProcess: ...


def open_log(node: "Node") -> IO[bytes]:
    """Open the file that a node's process writes its log to; only the owner may read it."""
    make_private_folder(node.log_path.parent)
    descriptor = os.open(node.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    return open(descriptor, "ab")


def spawn(node: "Node", python: str, *, attached: bool) -> ChildProcess:
    """Start the node's process with this Python.

    It gets its own session, so that Ctrl-C reaches only this process.

    With ``attached``, the node stops when this process ends, however it ends: its standard input is
    a pipe from this process.
    """
    with open_log(node) as log_file:
        return subprocess.Popen(
            command_line(node, python, attached=attached),
            stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
            bufsize=0,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=node.folder,
        )


def is_ours(pid: int, config_path: Path) -> bool:
    """Return whether ``pid`` runs and is the node with that configuration file. A zombie does not
    run."""
    return str(config_path) in _arguments(pid)


def _arguments(pid: int) -> Sequence[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        return os.fsdecode(raw).split("\0")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ()
    except OSError:
        return ()
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


def send(pid: int, config_path: Path, signal_number: signal.Signals) -> bool:
    """Send a signal to the process if it is ours; return whether it was."""
    if not is_ours(pid, config_path):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal_number)
    return True


def wait_gone(processes: Iterable[tuple[int, Path]], timeout_ms: int) -> list[tuple[int, Path]]:
    """Wait until none of ``(pid, config path)`` runs; return those that still run at the
    deadline."""
    deadline = time.monotonic() + timeout_ms / 1000
    left = list(processes)
    while left := [process for process in left if is_ours(*process)]:
        if time.monotonic() >= deadline:
            return left
        time.sleep(POLL_INTERVAL_MS / 1000)
    return []


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log file; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    except OSError:
        return []
