"""Cuts what a connection receives into frames, each with its length in front.

Small frames are received many at a time and copied out. A frame that is larger than the buffer is
received in memory of its own, and not copied.
"""

from collections.abc import Iterator
from typing import Final

from quorate.broker.replication.api import Bytes
from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.streams.packed_codec import LENGTH

_BUFFER_BYTES: Final = 256 << 10


class FrameReader:
    """The received bytes of one connection that are not a whole frame yet."""

    __slots__ = ("_begin", "_buffer", "_end", "_filled", "_large", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """The largest frame that is taken. It may be changed between frames."""
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._begin = self._end = 0
        self._large: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Return where the next bytes are to be received. It is never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._buffer[self._end :]

    def received(self, count: int) -> Iterator[Bytes]:
        """Take in ``count`` more bytes, and yield the frames that are whole now, without lengths.

        A frame is looked at when it is asked for, so that ``frame_bytes_max`` may be changed after
        the one before, also where both were received together.

        Raises:
            MalformedFrame: a frame is larger than allowed. The connection is of no use any more.
        """
        if self._large is None:
            self._end += count
            yield from self._cut()
            return
        self._filled += count
        if self._filled == len(self._large):
            whole, self._large = self._large, None
            yield whole

    def _cut(self) -> Iterator[Bytes]:
        wanted = LENGTH.size
        while self._end - self._begin >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, self._begin)
            if length > self.frame_bytes_max:
                raise MalformedFrame(
                    f"a frame of {length} bytes, {self.frame_bytes_max} are allowed"
                )
            wanted = LENGTH.size + length
            if self._end - self._begin < wanted:
                break
            begin = self._begin + LENGTH.size
            self._begin += wanted
            wanted = LENGTH.size
            yield bytes(self._buffer[begin : self._begin])
        self._keep(self._begin, self._end, wanted)

    def _keep(self, begin: int, end: int, wanted: int) -> None:
        """Keep the beginning of a frame of ``wanted`` bytes where the rest of it has room."""
        buffer, count = self._buffer, end - begin
        if wanted > len(buffer):
            self._large = memoryview(bytearray(wanted - LENGTH.size))
            self._filled = count - LENGTH.size
            self._large[: self._filled] = buffer[begin + LENGTH.size : end]
            begin = end = 0
        elif begin + wanted > len(buffer) or not count:
            buffer[:count] = bytes(buffer[begin:end])
            begin, end = 0, count
        self._begin, self._end = begin, end
