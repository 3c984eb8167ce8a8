"""Runs a function in a forked child with a time limit: the child may die of what it reads."""

import faulthandler
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_READ_BYTES = 1 << 20


class Died(Exception):
    """The child did not return a value; the message says why."""


class TrialOutcome(msgspec.Struct, Generic[T], frozen=True):
    """The way in which the child ended: ``said``, and one other field."""

    value: T | None = None
    trace: str = ""
    """The trace of the exception with which the function ended."""
    signal: str = ""
    """The name of the signal that ended the child."""
    hung: bool = False
    said: str = ""
    """The text that the child wrote to standard error."""


def in_child(work: Callable[[], T], limit_s: float, said: Path) -> TrialOutcome[T]:
    """Call ``work`` in a child; ``said`` takes its standard error. The caller has one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing, said)
    os.close(writing)
    try:
        data, hung = _received(reading, time.monotonic() + limit_s)
    finally:
        os.close(reading)
    if hung:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    text = said.read_text(errors="replace") if said.exists() else ""
    if hung:
        return TrialOutcome(hung=True, said=text)
    if os.WIFSIGNALED(status):
        return TrialOutcome(signal=signal.Signals(os.WTERMSIG(status)).name, said=text)
    value, trace = pickle.loads(data)
    return TrialOutcome(value=value, trace=trace, said=text)


def value_of(outcome: TrialOutcome[T]) -> T:
    """Return the value of a child that is expected to succeed.

    Raises:
        Died: it did not.
    """
    if outcome.value is None:
        raise Died(outcome.trace or outcome.signal or outcome.said or "it took too long")
    return outcome.value


def _received(reading: int, deadline: float) -> tuple[bytes, bool]:
    """Return what the child wrote until it closed the pipe, and whether time ran out first."""
    pieces: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([reading], [], [], left)
        if not ready:
            break
        piece = os.read(reading, _READ_BYTES)
        if not piece:
            return b"".join(pieces), False
        pieces.append(piece)
    return b"", True


def _work(work: Callable[[], T], writing: int, said: Path) -> None:
    """Do the child's part; it does not return."""
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with said.open("wb") as output:
            os.dup2(output.fileno(), 2)
        data = pickle.dumps(_result(work))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)
    finally:
        sys.stderr.flush()
        os._exit(0)


def _result(work: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return work(), ""
    except BaseException:  # noqa: BLE001 - it is judged by the parent
        return None, traceback.format_exc()
