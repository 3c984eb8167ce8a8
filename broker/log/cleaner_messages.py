"""What a broker and its cleaner's process say to one another: one answer to each request.

A frame is its length, u32 big-endian, and MessagePack.
"""

import struct
from typing import IO, Final, TypeVar

import msgspec

from broker.log.compaction.log_cleaning import CleaningTask
from broker.log.compaction.replacements import Replacement

_LENGTH: Final = struct.Struct(">I")
T = TypeVar("T")


class Begin(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A log's cleaning begins; forget the one before. Answered by ``Mapped``."""

    task: CleaningTask


class Map(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Batches of the first walk. Answered by ``Mapped``."""

    batches: bytes


class Clean(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Batches of the second walk. Answered by ``Changed``."""

    batches: bytes


class Finish(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The second walk is at its end. Answered by ``Changed``."""


class Mapped(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How far keys are known, and whether there is room for more."""

    mapped_to: int
    has_room: bool


class Changed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What is to be replaced in the log."""

    replacements: list[Replacement]


class Undecodable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The log cannot be cleaned: a producer wrote what nobody can read."""

    problem: str


Request = Begin | Map | Clean | Finish
Reply = Mapped | Changed | Undecodable


def write_frame(stream: IO[bytes], message: Request | Reply) -> None:
    """Raises: OSError."""
    payload = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes], kind: msgspec.msgpack.Decoder[T]) -> T | None:
    """None at the end of the stream."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    payload = stream.read(size)
    return kind.decode(payload) if len(payload) == size else None
