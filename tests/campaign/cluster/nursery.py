"""Starts voters and brokers as forks of a process that has everything imported already.

Each is a process of its own with the product's entry point, and may be killed like any other; only
the second of importing is saved. It also compares stopped brokers' folders.

The nursery is a process of its own because it must have one thread and no gRPC connection when it
forks. It reads a request a line and answers in a line, both in JSON.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from quorate.broker import process as broker
from quorate.cluster.layout import Node
from quorate.quorum import process as quorum
from tests.campaign.cluster.replica_differences import Differences, differences

_PR_SET_PDEATHSIG = 1


class Sprout:
    """A node's process, with what ``quorate.cluster.local`` uses of ``subprocess.Popen``."""

    stdin = None

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        code = self._nursery.ask("poll", self.pid)
        return None if code is None else int(code)

    def wait(self) -> int:
        return int(self._nursery.ask("wait", self.pid))


class Nursery:
    """The nursery, seen from the process that uses it. ``nursery()`` makes it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, what: str, *arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Send a request and return the answer.

        Raises:
            RuntimeError: the nursery could not do it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def spawn(self, node: Node, python: str, *, attached: bool) -> Sprout:
        """Take the place of ``quorate.cluster.processes.spawn``."""
        node.log_path.parent.mkdir(parents=True, exist_ok=True)
        pid = self.ask("start", node.kind, str(node.config_path), str(node.log_path))
        return Sprout(self, int(pid))


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """Run a nursery for the clusters below ``folder``; all of their nodes end with it."""
    # Processes are recognised as a node's by its configuration's path in their command line.
    names = [f"broker-{n}.toml" for n in range(1, 6)] + [f"quorum-{n}.toml" for n in range(1, 6)]
    configs = [str(folder / "config" / name) for name in names]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.campaign.cluster.nursery", *configs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[3],
    )
    made = Nursery(process)
    try:
        with mock.patch("quorate.cluster.local.spawn", made.spawn):
            yield made
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


# --- inside the nursery ---------------------------------------------------------------------------


class _Inside:
    """Starts nodes and knows how they ended. The names of its public methods are the requests."""

    def __init__(self) -> None:
        self._codes: dict[int, int | None] = {}
        self._entries = {"broker": broker.run, "quorum": quorum.run}

    def start(self, kind: str, config: str, log: str) -> int:
        pid = os.fork()
        if pid == 0:
            _become(self._entries[kind], Path(config), Path(log))
        self._codes[pid] = None
        return pid

    def poll(self, pid: int, options: int = os.WNOHANG) -> int | None:
        if self._codes[pid] is None:
            found, status = os.waitpid(pid, options)
            self._codes[pid] = os.waitstatus_to_exitcode(status) if found else None
        return self._codes[pid]

    def wait(self, pid: int) -> int | None:
        return self.poll(pid, 0)

    def differences(self, folders: Sequence[str], ends: dict[str, int]) -> Differences:
        return differences([Path(folder) for folder in folders], ends)

    def reap(self) -> None:
        """Take note of the nodes that have ended."""
        for pid in self._codes:
            self.poll(pid)

    def kill_all(self) -> None:
        for pid, code in self._codes.items():
            if code is None:
                os.kill(pid, signal.SIGKILL)
                self.wait(pid)


def _serve() -> None:
    """Answer requests until the input ends, then end every node."""
    inside = _Inside()
    for line in sys.stdin:
        inside.reap()
        what, *arguments = json.loads(line)
        try:
            answer = {"value": getattr(inside, what)(*arguments)}
        except Exception:  # noqa: BLE001 - told to who asked
            answer = {"error": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    inside.kill_all()


def _become(run: Callable[[Path, dict[str, object]], int], config: Path, log: Path) -> None:
    """Be the node, in a fork, as long as the nursery lives; this does not return."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        with log.open("ab") as output:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(config.parent.parent)
        code = run(config, {})
    except BaseException:  # noqa: BLE001 - as the interpreter shows it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
