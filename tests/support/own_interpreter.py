"""Runs a function in an interpreter of its own, which it may end by a signal.

A fork would not do: a test's process has threads, and a child forked from it may wait for ever for
a lock that one of them held.
"""

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 110.0
_SAID_MAX: Final = 2_000
_CALL: Final = """
import importlib, pickle, sys
module, name, arguments = pickle.loads(sys.stdin.buffer.read())
getattr(importlib.import_module(module), name)(*arguments)
"""


def tell(text: str) -> None:
    """Say, in an interpreter of its own, what is tried next: it may be the last that it says."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run_in_own_interpreter(function: Callable[..., None], *arguments: object) -> None:
    """Call a function of a module, with arguments that can be pickled.

    Raises:
        AssertionError: it failed, with the end of what it wrote, or was ended by a signal.
        subprocess.TimeoutExpired: it took too long.
    """
    run = subprocess.run(
        [sys.executable, "-c", _CALL],
        input=pickle.dumps((function.__module__, function.__name__, arguments)),
        capture_output=True,
        cwd=_ROOT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = run.stderr.decode(errors="replace")[-_SAID_MAX:]
    if run.returncode < 0:
        raise AssertionError(f"{signal.Signals(-run.returncode).name}: {said}")
    assert run.returncode == 0, said
