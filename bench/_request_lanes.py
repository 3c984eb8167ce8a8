"""Connections to one broker that keep a number of prepared requests in flight."""

import os
import selectors
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench._request_frames import NextFrame, frame
from tests.support.kafka_wire import Values, read_answer

_TIMEOUT_S: Final = 30.0
_RECEIVE_BYTES: Final = 256 << 10
_SIZE: Final = struct.Struct(">i")


class Lane:
    """One connection. ``following`` makes its next request."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def ask(self, api: tuple[int, int], values: Values) -> Any:  # noqa: ANN401 - of kio
        """Send a request, and return the response to it, read."""
        return self.exchange(api, frame(api, values))

    def exchange(self, api: tuple[int, int], request: bytes) -> Any:  # noqa: ANN401 - of kio
        """Send a whole request, and return the response to it, read."""
        self.socket.sendall(request)
        return read_answer(*api, self.answer())[1]

    def answer(self) -> bytes:
        """Return the next answer, without its size."""
        while True:
            if len(self._received) >= _SIZE.size:
                end = _SIZE.size + _SIZE.unpack_from(self._received)[0]
                if len(self._received) >= end:
                    found = bytes(self._received[_SIZE.size : end])
                    del self._received[:end]
                    return found
            self._receive()

    def take_answers(self) -> list[int]:
        """Receive once, and return the sizes of the answers that are complete now."""
        self._receive()
        sizes = []
        at = 0
        while len(self._received) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received, at)
            if len(self._received) - at - _SIZE.size < size:
                break
            sizes.append(size)
            at += _SIZE.size + size
        del self._received[:at]
        return sizes

    def close(self) -> None:
        self.socket.close()

    def _receive(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._received += data


def drive(lanes: Sequence[tuple[Lane, NextFrame]], requests: int, in_flight: int) -> None:
    """Send so many requests over all lanes, with ``in_flight`` of each at a time.

    Raises:
        RuntimeError: an answer has another size than the first one, so it is another answer.
    """
    left = requests
    sizes: set[int] = set()
    with selectors.DefaultSelector() as selector:
        for lane, following in lanes:
            selector.register(lane.socket, selectors.EVENT_READ, (lane, following))
            lane.socket.sendall(b"".join([following() for _ in range(in_flight)]))
            left -= in_flight
        open_requests = requests - left
        while open_requests:
            for key, _ in selector.select(_TIMEOUT_S):
                lane, following = key.data
                answered = lane.take_answers()
                sizes.update(answered)
                again = min(len(answered), max(0, left))
                open_requests += again - len(answered)
                left -= again
                if again:
                    lane.socket.sendall(b"".join([following() for _ in range(again)]))
    if len(sizes) > 1:
        raise RuntimeError(f"answers of {sorted(sizes)} bytes: not all of them are the same")


def pin(pid: int, core: int) -> None:
    """Have all threads of a process run on one core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {core})


def cpu_ns(pid: int) -> int:
    """Return the time that the threads of a process have run so far, in ns."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total
