"""Assembly of frames, without I/O: it provides the buffer to receive into, and returns the frames
that are complete.

The bytes of a frame are copied at most once. Small frames are copied out of the receive buffer. The
rest of a large frame is received directly into the frame. The announced size is checked before
memory of that size is allocated, and a large frame takes memory as it grows.
"""

import mmap
import struct
from typing import Final, Protocol

from quorate.broker.config.listeners import SOCKET_REQUEST_MAX_BYTES
from quorate.broker.kafka.wire.primitives import MalformedRequest

RECEIVE_BUFFER_BYTES: Final = 64 << 10
"""The size of the buffer that all connections share. Received bytes are taken out of it at once.
Frames up to this size are held without asking for memory.
"""

_SIZE: Final = struct.Struct(">i")
_HEADER_BYTES_MIN: Final = 8
"""The size of API key, version and correlation id. No request is shorter."""

_LAZY_BYTES: Final = 4 << 20
"""The frame size from which on memory becomes resident only as the bytes arrive. Announcing a
frame costs a hostile client nothing, so it must cost the broker nothing either. For smaller
frames, memory that the process already has is faster.
"""

_FIRST_GRANT_BYTES: Final = 1 << 20
"""The first grant of memory for a lazy frame. Each further grant doubles the memory of the
frame.
"""


class FrameMemory(Protocol):
    """The memory for frames. The product's class is ``client_memory.RequestAccount``."""

    def hold(self, count: int) -> None:
        """Hold ``count`` more bytes, even beyond the limit."""

    def take(self, count: int) -> bool:
        """Take ``count`` more bytes for a large frame. If it returns False, ``resume`` is called
        later.
        """

    def whole(self) -> None:
        """Record that the large frame has all its bytes."""


class FrameAssembler:
    """The frames of one connection.

    ``max_frame_bytes`` is socket.request.max.bytes. ``receive_buffer`` may be shared with other
    connections, because nothing else runs between ``buffer`` and ``received``. The bytes of every
    frame that is returned were taken from ``memory``.
    """

    def __init__(
        self, max_frame_bytes: int, receive_buffer: memoryview, memory: FrameMemory
    ) -> None:
        self.expect(max_frame_bytes)
        self._receive_buffer = receive_buffer
        self._memory = memory
        self._prefix = b""
        """The first bytes of a size field of which the rest has not arrived."""
        self._size = 0
        """The size of the frame that is being received, or 0 if there is none."""
        self._head: bytes | memoryview = b""
        """The bytes of the frame that arrived before its first grant."""
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
        """Set other limits for the frames from now on.

        ``setting`` is the configuration key of ``max_frame_bytes``. ``least_bytes`` may be small,
        because SASL tokens have no header.
        """
        self._max_frame_bytes = max_frame_bytes
        self._least_bytes = least_bytes
        self._setting = setting

    @property
    def is_within_a_frame(self) -> bool:
        """True if a frame has begun and is not complete."""
        return bool(self._size or self._prefix)

    @property
    def needs_memory(self) -> bool:
        """True if nothing more can be received until ``resume`` returns that there is memory."""
        return bool(self._size) and self._filled == self._granted

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is writable, and never empty unless
        ``needs_memory``.
        """
        if self._frame is not None:
            return self._frame[self._filled : self._granted]
        if self._size:
            return self._receive_buffer[:0]
        used = len(self._prefix)
        self._receive_buffer[:used] = self._prefix
        return self._receive_buffer[used:]

    def received(self, count: int) -> list[memoryview]:
        """Accept ``count`` bytes that were put into ``buffer()``, and return the frames that they
        complete.

        Each frame is writable, has no size prefix, and is not shared.

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
        """Ask for memory again, and return whether there is some."""
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
