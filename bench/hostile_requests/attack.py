"""Sends one frame over one or many connections, and says what became of it."""

import dataclasses
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from bench.hostile_requests.cases import Case
from bench.hostile_requests.wire import Wire
from quorate.broker.common.errors import ERROR_NAMES
from tests.support.kafka_wire import read_answer

_READ_WHOLE_BYTES: Final = 1 << 20
_SLICE: Final = 1 << 20
_LOOK_EVERY_S: Final = 0.25
_MOST_CODES: Final = 4


class Answer(NamedTuple):
    """``begin`` holds the first bytes of an answer of ``size`` bytes; size is -1 without one."""

    size: int
    begin: bytes
    ended: str


def send_all(
    frame: bytes, wires: Sequence[Wire], is_waiting: Callable[[], bool], timeout_s: float
) -> list[Answer]:
    """Send the frame over each connection at once; return when each is answered or closed.

    A client gives up when ``is_waiting`` says that the broker does nothing for it any more.
    """
    found: list[Answer] = [Answer(-1, b"", "not sent")] * len(wires)
    deadline = time.monotonic() + timeout_s

    def one(number: int) -> None:
        found[number] = _send(wires[number], frame, is_waiting, deadline)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(wires))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _send(wire: Wire, frame: bytes, is_waiting: Callable[[], bool], deadline: float) -> Answer:
    peer = wire.socket
    peer.settimeout(_LOOK_EVERY_S)
    view = memoryview(frame)
    while view:
        try:
            view = view[peer.send(view[:_SLICE]) :]
        except TimeoutError:
            if time.monotonic() > deadline:
                return Answer(-1, b"", "not read")
        except OSError:
            return Answer(-1, b"", "closed")
    return _receive(peer, is_waiting, deadline)


def _receive(peer: socket.socket, is_waiting: Callable[[], bool], deadline: float) -> Answer:
    begin, size, got = bytearray(), -1, 0
    while size < 0 or got < size + 4:
        try:
            chunk = peer.recv(_SLICE)
        except TimeoutError:
            if time.monotonic() > deadline:
                return Answer(size, bytes(begin[4:]), "too late")
            if not got and is_waiting():
                return Answer(-1, b"", "waits")
            continue
        except OSError:
            chunk = b""
        if not chunk:
            return Answer(size, bytes(begin[4:]), "closed")
        got += len(chunk)
        if len(begin) < _READ_WHOLE_BYTES:
            begin += chunk
        if size < 0 and len(begin) >= 4:
            (size,) = struct.unpack_from(">i", begin)
    return Answer(size, bytes(begin[4:]), "")


def describe(case: Case, answer: Answer, closed_why: str) -> str:
    """The outcome in a few words: error codes, or why the connection was closed."""
    if answer.ended:
        return f"{answer.ended}: {closed_why}" if closed_why else answer.ended
    if answer.size > len(answer.begin):
        return f"{answer.size / 1e6:.1f} MB"
    try:
        _, response = read_answer(case.key, case.version, answer.begin)
    except Exception:  # noqa: BLE001 - kio lacks some versions and tags that are served
        return f"{answer.size} bytes"
    codes = Counter(_codes(response))
    named = [f"{_name(code)} x {n}" if n > 1 else _name(code) for code, n in codes.most_common()]
    text = ", ".join(named[:_MOST_CODES]) or "answered"
    return f"{text} ({answer.size / 1e3:.0f} KB)" if answer.size > 10_000 else text


def _codes(message: Any) -> list[int]:  # noqa: ANN401 - of kio
    found: list[int] = []
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(int(value))
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for one in value:
                found += _codes(one)
    return found


def _name(code: int) -> str:
    return ERROR_NAMES.get(code, str(code))
