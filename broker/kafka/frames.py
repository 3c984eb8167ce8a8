"""Frame assembly without I/O: where to receive next, and which frames that completed.

A frame's bytes are copied at most once: small frames out of the receive buffer, large ones not at
all, because their remainder is received straight into the frame. The announced size is checked
before anything is allocated by it.
"""

import mmap
import struct
from typing import Final

from broker.config.listeners import SOCKET_REQUEST_MAX_BYTES
from broker.kafka.cursor import MalformedRequest

RECEIVE_BUFFER_BYTES: Final = 64 << 10
_SIZE: Final = struct.Struct(">i")
_HEADER_BYTES_MIN: Final = 8
"""API key, version and correlation id: no request is shorter."""

_LAZY_BYTES: Final = 16 << 20
"""From here on a frame's memory becomes resident only as its bytes arrive: announcing costs a
hostile peer nothing, so it must cost us nothing either."""


class FrameAssembler:
    """Frames of one connection. ``max_frame_bytes``: socket.request.max.bytes."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.expect(max_frame_bytes)
        self._received = bytearray(RECEIVE_BUFFER_BYTES)
        self._received_view = memoryview(self._received)
        self._used = 0
        self._frame: memoryview | None = None
        self._filled = 0

    def expect(
        self,
        max_frame_bytes: int,
        setting: str = SOCKET_REQUEST_MAX_BYTES.name,
        *,
        least_bytes: int = _HEADER_BYTES_MIN,
    ) -> None:
        """Other limits for frames from now on. ``setting``: the one that ``max_frame_bytes`` is of.

        ``least_bytes``: SASL tokens have no header, and may be short.
        """
        self._max_frame_bytes = max_frame_bytes
        self._least_bytes = least_bytes
        self._setting = setting

    def buffer(self) -> memoryview:
        """Where the next bytes belong: writable, never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._received_view[self._used :]

    def received(self, count: int) -> list[memoryview]:
        """Takes ``count`` bytes just put into ``buffer()``; returns the frames they complete.

        Each frame is writable, without its size prefix, and nobody else holds it.

        Raises:
            MalformedRequest: a size is negative, too small or too large.
        """
        if self._frame is not None:
            self._filled += count
            if self._filled < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            return [frame]
        self._used += count
        return self._split()

    def _split(self) -> list[memoryview]:
        frames: list[memoryview] = []
        start = 0
        while self._used - start >= _SIZE.size:
            size = self._checked(start)
            start += _SIZE.size
            frame = _allocate(size)
            available = min(size, self._used - start)
            frame[:available] = self._received_view[start : start + available]
            start += available
            if available < size:
                self._frame, self._filled = frame, available
                break
            frames.append(frame)
        rest = self._used - start
        self._received[:rest] = self._received[start : self._used]
        self._used = rest
        return frames

    def _checked(self, start: int) -> int:
        (size,) = _SIZE.unpack_from(self._received, start)
        if self._least_bytes <= size <= self._max_frame_bytes:
            return int(size)
        prefix = bytes(self._received[start : start + _SIZE.size])
        limit = (
            f"above {self._setting}={self._max_frame_bytes}"
            if size > self._max_frame_bytes
            else f"below the {self._least_bytes} bytes of a request header"
        )
        raise MalformedRequest(f"frame size {size} (bytes {prefix!r}) is {limit}")


def _allocate(size: int) -> memoryview:
    return memoryview(bytearray(size) if size < _LAZY_BYTES else mmap.mmap(-1, size))
