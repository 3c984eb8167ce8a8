"""Kafka's primitive types. They are read with every length checked, and appended to responses.

Nothing here allocates memory by a number from the wire, or works in proportion to one. An array may
not announce more elements than the frame has bytes left, and a request may not have more elements
in all than its reader allows. Tagged fields count as elements, because they cost as much.
"""

import struct
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from quorate.broker.common.steps import Steps
from quorate.common.types import ID_BYTES, TopicId

MAX_ELEMENTS: Final = 1 << 20
"""The most elements of one request, where no lower limit is given. A frame of empty strings must
not become gigabytes of objects.
"""

MAX_TAGGED_FIELDS: Final = 32
"""The most tagged fields at one place of a request. Clients send a handful. They are skipped
without a break, so there must not be many.
"""

TEXT_BYTES_MAX: Final = 0x7FFF
"""The most bytes of a string, as in Kafka, whatever the encoding of its length. Operations on
names take time and memory in proportion to their length.
"""

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT16: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_FLOAT64: Final = struct.Struct(">d")
_NULL: Final = -1
_VARINT_MAX_BYTES: Final = 5


Buffers: TypeAlias = list[bytes | memoryview]
"""An encoded response in pieces, which are written without being joined.

The list is empty if the client expects no response (acks=0).
"""


T = TypeVar("T")

ELEMENTS_IN_A_STEP: Final = 64


def at_once(steps: Steps[T]) -> T:
    """Carry out all steps without a break, and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


class MalformedRequest(Exception):
    """The bytes from a client are not a Kafka request. The message says what is wrong, with the
    value.
    """


class TooManyElements(MalformedRequest):
    """A request has more elements, or more tagged fields, than its reader allows."""


class Cursor:
    """Reads forward through one frame.

    ``elements`` counts the array elements and tagged fields that were announced so far, at most
    ``elements_max``.

    Raises:
        MalformedRequest: from every method, if the frame ends early or a length is invalid.
    """

    __slots__ = ("_end", "_view", "elements", "elements_max", "offset")

    def __init__(self, view: memoryview, offset: int = 0, elements_max: int = MAX_ELEMENTS) -> None:
        self._view = view
        self._end = len(view)
        self.elements_max = elements_max
        self.elements = 0
        self.offset = offset

    @property
    def size(self) -> int:
        """The size of the whole frame."""
        return self._end

    def rest(self) -> tuple[memoryview, int]:
        """Return the whole frame, and the offset of what is not read yet."""
        return self._view, self.offset

    def read_to(self, offset: int, elements: int) -> bool:
        """Note that the frame was read up to ``offset``, and so many elements. Return False without
        a change if these are too many.
        """
        if self.elements + elements > self.elements_max:
            return False
        self.offset = offset
        self.elements += elements
        return True

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read several fixed-width fields at once, for hot paths."""
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
        return UUID(bytes=bytes(self.slice(ID_BYTES)))

    def topic_id(self) -> TopicId:
        """Read the id of a topic, for hot paths: an ``UUID`` takes long to make."""
        return TopicId(bytes(self.slice(ID_BYTES)))

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
        """Return the next ``length`` bytes, without copying them."""
        start = self.offset
        end = start + length
        if length < 0:
            raise MalformedRequest(f"negative length {length} at byte {start}")
        if end > self._end:
            raise self._too_short(length)
        self.offset = end
        return self._view[start:end]

    def text(self, *, flexible: bool) -> str | None:
        """Read a string. The result is None for null."""
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
        """Read bytes or records, without copying them. The result is None for null."""
        length = self.uvarint() - 1 if flexible else self.int32()
        return None if length == -1 else self.slice(length)

    def array_length(self, *, flexible: bool) -> int | None:
        """Read the number of elements that follow. The result is None for a null array."""
        length = self.uvarint() - 1 if flexible else self.int32()
        if length == -1:
            return None
        if not 0 <= length <= self._end - self.offset:
            raise MalformedRequest(
                f"array of {length} elements at byte {self.offset}, but only "
                f"{self._end - self.offset} bytes follow"
            )
        self.elements += length
        if self.elements > self.elements_max:
            raise self._too_many()
        return length

    def skip_tagged_fields(self) -> None:
        offset = self.offset
        if offset < self._end and not self._view[offset]:
            self.offset = offset + 1
            return
        self.tagged_fields()

    def tagged_fields(self) -> dict[int, memoryview]:
        """Read the tagged fields at one place. Return the bytes of each by its tag."""
        count = self.uvarint()
        if count > MAX_TAGGED_FIELDS:
            raise TooManyElements(f"more than {MAX_TAGGED_FIELDS} tagged fields at one place")
        self.elements += count
        if self.elements > self.elements_max:
            raise self._too_many()
        fields: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            fields[tag] = self.slice(self.uvarint())
        return fields

    def _advance(self, length: int) -> int:
        start = self.offset
        end = start + length
        if end > self._end:
            raise self._too_short(length)
        self.offset = end
        return start

    def _too_many(self) -> TooManyElements:
        return TooManyElements(
            f"{self.elements} or more array elements and tagged fields in one request: at most "
            f"{self.elements_max}"
        )

    def _too_short(self, length: int) -> MalformedRequest:
        return MalformedRequest(
            f"{length} bytes wanted at byte {self.offset}, but the request has {self._end}"
        )


def append_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned variable-length integer."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def append_length(out: bytearray, length: int, flexible: bool) -> None:
    """Append the length of an array or of bytes. -1 stands for null."""
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)


def append_string(out: bytearray, text: str | None, flexible: bool) -> None:
    """Append a string. None stands for null."""
    raw = b"" if text is None else text.encode()
    length = _NULL if text is None else len(raw)
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += _INT16.pack(length)
    out += raw


def append_topic(out: bytearray, topic: str | TopicId, flexible: bool) -> None:
    """Append the name of a topic, or its id in the versions that name topics by their ids."""
    if isinstance(topic, str):
        append_string(out, topic, flexible)
    else:
        out += topic
