"""Kafka's primitive types, read from a frame with every length checked before it is believed.

Nothing here allocates by a number that came over the wire: an array may not announce more elements
than the frame has bytes left, and one request not more than ``MAX_ELEMENTS`` of them in all.
"""

import struct
from typing import Final
from uuid import UUID

MAX_ELEMENTS: Final = 1 << 20
"""Array elements of one request: a frame of empty strings must not become gigabytes of objects."""

TEXT_BYTES_MAX: Final = 0x7FFF
"""Of a string, however its length is written: Kafka's own limit. What is done with names takes time
and memory by their length."""

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT16: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_FLOAT64: Final = struct.Struct(">d")
_UUID_BYTES: Final = 16
_VARINT_MAX_BYTES: Final = 5


class MalformedRequest(Exception):
    """The peer's bytes are no Kafka request. The message says what is wrong, with the value."""


class Cursor:
    """Reads forward through one frame.

    Raises:
        MalformedRequest: from every method, where the frame ends early or a length is absurd.
    """

    __slots__ = ("_elements", "_end", "_view", "offset")

    def __init__(self, view: memoryview, offset: int = 0) -> None:
        self._view = view
        self._end = len(view)
        self._elements = 0
        self.offset = offset

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several fixed-width fields at once: what hot paths use."""
        start = self._advance(layout.size)
        return layout.unpack_from(self._view, start)

    def int8(self) -> int:
        return int(_INT8.unpack_from(self._view, self._advance(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack_from(self._view, self._advance(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self._view, self._advance(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack_from(self._view, self._advance(8))[0])

    def uint16(self) -> int:
        return int(_UINT16.unpack_from(self._view, self._advance(2))[0])

    def uint32(self) -> int:
        return int(_UINT32.unpack_from(self._view, self._advance(4))[0])

    def float64(self) -> float:
        return float(_FLOAT64.unpack_from(self._view, self._advance(8))[0])

    def boolean(self) -> bool:
        return self._view[self._advance(1)] != 0

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.slice(_UUID_BYTES)))

    def uvarint(self) -> int:
        start = self.offset
        if start < self._end and self._view[start] < 0x80:
            self.offset = start + 1
            return self._view[start]
        value = 0
        for shift in range(0, 7 * _VARINT_MAX_BYTES, 7):
            byte = self._view[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedRequest(f"varint at byte {self.offset} is longer than 5 bytes")

    def slice(self, length: int) -> memoryview:
        """The next ``length`` bytes, not copied."""
        start = self.offset
        end = start + length
        if length < 0:
            raise MalformedRequest(f"negative length {length} at byte {start}")
        if end > self._end:
            raise self._too_short(length)
        self.offset = end
        return self._view[start:end]

    def text(self, *, flexible: bool) -> str | None:
        """A string; None where the wire says null."""
        length = self.uvarint() - 1 if flexible else self.int16()
        if length == -1:
            return None
        if length > TEXT_BYTES_MAX:
            raise MalformedRequest(
                f"string of {length} bytes at byte {self.offset}: at most {TEXT_BYTES_MAX}"
            )
        start = self.offset
        try:
            return str(self.slice(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"string at byte {start} is not UTF-8: {error.reason}") from None

    def data(self, *, flexible: bool) -> memoryview | None:
        """Bytes or records, not copied; None where the wire says null."""
        length = self.uvarint() - 1 if flexible else self.int32()
        return None if length == -1 else self.slice(length)

    def array_length(self, *, flexible: bool) -> int | None:
        """Number of elements that follow; None where the wire says null."""
        length = self.uvarint() - 1 if flexible else self.int32()
        if length == -1:
            return None
        if not 0 <= length <= self._end - self.offset:
            raise MalformedRequest(
                f"array of {length} elements at byte {self.offset}, but only "
                f"{self._end - self.offset} bytes follow"
            )
        self._elements += length
        if self._elements > MAX_ELEMENTS:
            raise MalformedRequest(f"more than {MAX_ELEMENTS} array elements in one request")
        return length

    def skip_tagged_fields(self) -> None:
        offset = self.offset
        if offset < self._end and not self._view[offset]:
            self.offset = offset + 1
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.slice(self.uvarint())

    def _advance(self, length: int) -> int:
        start = self.offset
        end = start + length
        if end > self._end:
            raise self._too_short(length)
        self.offset = end
        return start

    def _too_short(self, length: int) -> MalformedRequest:
        return MalformedRequest(
            f"{length} bytes wanted at byte {self.offset}, but the request has {self._end}"
        )
