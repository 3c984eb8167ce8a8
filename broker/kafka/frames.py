"""Frame assembly without I/O: where to receive next, and which frames that completed.

A frame's bytes are copied at most once: small frames out of the receive buffer, large ones not at
all, because their remainder is received straight into the frame. The announced size is checked
before anything is allocated by it, and a large frame asks for memory as it grows.
"""

import mmap
import struct
from typing import Final, Protocol

from broker.config.listeners import SOCKET_REQUEST_MAX_BYTES
from broker.kafka.cursor import MalformedRequest

RECEIVE_BUFFER_BYTES: Final = 64 << 10
"""Of the buffer that all connections share: what is received is taken out of it at once. Frames up
to this size are held without asking."""

_SIZE: Final = struct.Struct(">i")
_HEADER_BYTES_MIN: Final = 8
"""API key, version and correlation id: no request is shorter."""

_LAZY_BYTES: Final = 4 << 20
"""From here on a frame's memory becomes resident only as its bytes arrive: announcing costs a
hostile peer nothing, so it must cost us nothing either. Below, memory that the process has already
is faster."""

_FIRST_GRANT_BYTES: Final = 1 << 20
"""Of a lazy frame; each further grant is as much as there is already."""


class FrameMemory(Protocol):
    """Where frames take their bytes from; ``client_memory.RequestAccount`` is the real one."""

    def hold(self, count: int) -> None:
        """``count`` bytes more, come what may."""

    def take(self, count: int) -> bool:
        """Whether there are ``count`` bytes more for a large frame; if not, ``resume`` later."""

    def whole(self) -> None:
        """The large frame has all its bytes."""


class FrameAssembler:
    """Frames of one connection. ``max_frame_bytes``: socket.request.max.bytes.

    ``receive_buffer``: may be shared, because between ``buffer`` and ``received`` nobody else has
    a turn. Of every frame that is returned, ``memory`` has given all its bytes.
    """

    def __init__(
        self, max_frame_bytes: int, receive_buffer: memoryview, memory: FrameMemory
    ) -> None:
        self.expect(max_frame_bytes)
        self._receive_buffer = receive_buffer
        self._memory = memory
        self._prefix = b""
        """The first bytes of a size that did not come whole."""
        self._size = 0
        """Of the frame that is received; 0: none is."""
        self._head: bytes | memoryview = b""
        """What came of it before its first grant."""
        self._frame: memoryview | None = None
        self._filled = 0
        self._granted = 0

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

    @property
    def is_within_a_frame(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return bool(self._size or self._prefix)

    @property
    def needs_memory(self) -> bool:
        """Nothing more can be received until ``resume`` has said that there is memory."""
        return bool(self._size) and self._filled == self._granted

    def buffer(self) -> memoryview:
        """Where the next bytes belong: writable, never empty unless ``needs_memory``."""
        if self._frame is not None:
            return self._frame[self._filled : self._granted]
        if self._size:
            return self._receive_buffer[:0]
        used = len(self._prefix)
        self._receive_buffer[:used] = self._prefix
        return self._receive_buffer[used:]

    def received(self, count: int) -> list[memoryview]:
        """Takes ``count`` bytes just put into ``buffer()``; returns the frames they complete.

        Each frame is writable, without its size prefix, and nobody else holds it.

        Raises:
            MalformedRequest: a size is negative, too small or too large.
        """
        if self._frame is None:
            return self._split(len(self._prefix) + count)
        self._filled += count
        if self._filled < self._size:
            if self._filled == self._granted:
                self.resume()
            return []
        self._memory.whole()
        frame, self._frame, self._size = self._frame, None, 0
        return [frame]

    def resume(self) -> bool:
        """Ask for memory again; whether there is."""
        if self._frame is None:
            granted = self._size if self._size < _LAZY_BYTES else _FIRST_GRANT_BYTES
        else:
            granted = min(self._granted, self._size - self._granted)
        if not self._memory.take(granted):
            if isinstance(self._head, memoryview):
                self._head = bytes(self._head)
            return False
        if self._frame is None:
            self._begin(granted)
        else:
            self._granted += granted
        return True

    def _begin(self, granted: int) -> None:
        self._frame = _allocate(self._size)
        self._filled, self._granted = len(self._head), granted
        self._frame[: self._filled] = self._head
        self._head = b""

    def _split(self, used: int) -> list[memoryview]:
        buffer = self._receive_buffer
        frames: list[memoryview] = []
        start = 0
        while used - start >= _SIZE.size:
            size = self._checked(start)
            start += _SIZE.size
            arrived = buffer[start : min(start + size, used)]
            start += len(arrived)
            if len(arrived) == size:
                self._memory.hold(size)
                frames.append(memoryview(bytearray(arrived)))
                continue
            self._size, self._head = size, arrived
            self._filled = self._granted = 0
            if size <= RECEIVE_BUFFER_BYTES:
                self._memory.hold(size)
                self._begin(size)
            else:
                self.resume()
        self._prefix = bytes(buffer[start:used])
        return frames

    def _checked(self, start: int) -> int:
        (size,) = _SIZE.unpack_from(self._receive_buffer, start)
        if self._least_bytes <= size <= self._max_frame_bytes:
            return int(size)
        prefix = bytes(self._receive_buffer[start : start + _SIZE.size])
        limit = (
            f"above {self._setting}={self._max_frame_bytes}"
            if size > self._max_frame_bytes
            else f"below the {self._least_bytes} bytes of a request header"
        )
        raise MalformedRequest(f"frame size {size} (bytes {prefix!r}) is {limit}")


def _allocate(size: int) -> memoryview:
    if size < _LAZY_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
