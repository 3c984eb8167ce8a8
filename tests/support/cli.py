"""Running the ``quorate`` command as a user does: in its own process."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.forked_commands import run_forked

TIMEOUT_S = 90


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "quorate.cli.main", *words]


@contextlib.contextmanager
def running(*words: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A command while it runs; killed at the end if it still does, so that no test hangs."""
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def quorate(*words: str, stdin: bytes = b"", code: int = 0) -> str:
    """Standard output of a command that is expected to end with ``code``."""
    done = run_forked(words, stdin, TIMEOUT_S)
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return done.stdout.decode()


def quorate_json(*words: str, stdin: bytes = b"") -> Any:  # noqa: ANN401 - JSON
    """Run a command with ``--json``, and return what it prints."""
    return json.loads(quorate(*words, "--json", stdin=stdin))


def quorate_error(*words: str, stdin: bytes = b"", code: int = 1) -> str:
    """Standard error of a command that is expected to fail with ``code``."""
    done = run_forked(words, stdin, TIMEOUT_S)
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return done.stderr.decode()


def cluster_json(folder: Path) -> Any:  # noqa: ANN401 - JSON
    return json.loads((folder / "cluster.json").read_text())


def cluster_pids(folder: Path) -> list[int]:
    """Process ids of all nodes, as cluster.json tells them."""
    state = cluster_json(folder)
    return [entry["pid"] for entry in (*state["quorum"], *state["brokers"])]


def alive(pids: Sequence[int]) -> list[int]:
    """Return the processes that still run; a zombie does not."""
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (ProcessLookupError, FileNotFoundError):
        return False
