"""The fields that the records of coordinators' topics are made of: Kafka's, big-endian."""

import struct
from typing import Final

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")


class UnknownRecord(Exception):
    """A record of another format: written by a newer release, or not by a coordinator at all."""


def text_field(text: str | None) -> bytes:
    """Length i16, -1 for None, and UTF-8."""
    if text is None:
        return INT16.pack(-1)
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def data_field(data: bytes) -> bytes:
    """Length i32 and the bytes."""
    return INT32.pack(len(data)) + data


class RecordReader:
    """Reads a record from front to back. Each method may raise UnknownRecord."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._position = 0

    def int8(self) -> int:
        return int.from_bytes(self._take(1), signed=True)

    def int16(self) -> int:
        return self._unpack(INT16)

    def int32(self) -> int:
        return self._unpack(INT32)

    def int64(self) -> int:
        return self._unpack(INT64)

    def optional_text(self) -> str | None:
        """As ``text_field`` writes it; what is no UTF-8 is replaced."""
        length = self.int16()
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def text(self) -> str:
        """As ``optional_text``; empty for None."""
        return self.optional_text() or ""

    def data(self) -> bytes:
        """As ``data_field`` writes it; empty for a negative length."""
        return self._take(max(0, self.int32()))

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._record):
            raise UnknownRecord(f"{len(self._record)} bytes, cut off in a field that ends at {end}")
        taken = self._record[self._position : end]
        self._position = end
        return taken

    def _unpack(self, layout: struct.Struct) -> int:
        return int(layout.unpack(self._take(layout.size))[0])
