"""The messages between a broker and its cleaner process. Each request gets one answer.

A frame is its length, a big-endian u32, followed by MessagePack.
"""

import struct
from typing import IO, Final, TypeVar

import msgspec

from quorate.broker.log.compaction.log_cleaning import CleaningTask
from quorate.broker.log.compaction.replacements import Replacement

_LENGTH: Final = struct.Struct(">I")
T = TypeVar("T")


class BeginCleaning(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Begin the cleaning of a log and discard the previous one. The answer is ``KeysMapped``."""

    task: CleaningTask


class MapKeys(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Batches of the first pass, whose keys are collected. The answer is ``KeysMapped``."""

    batches: bytes


class CleanBatches(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Batches of the second pass, which are cleaned. The answer is ``BatchesReplaced``."""

    batches: bytes


class FinishCleaning(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The end of the second pass. The answer is ``BatchesReplaced``."""


class KeysMapped(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The offset up to which keys are collected, and whether there is room for more."""

    mapped_to: int
    has_room: bool


class BatchesReplaced(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The batches that are to be replaced in the log."""

    replacements: list[Replacement]


class LogUndecodable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The log cannot be cleaned, because a producer wrote records that cannot be decoded."""

    problem: str


CleanerRequest = BeginCleaning | MapKeys | CleanBatches | FinishCleaning
CleanerReply = KeysMapped | BatchesReplaced | LogUndecodable


def write_frame(stream: IO[bytes], message: CleanerRequest | CleanerReply) -> None:
    """Write one message.

    Raises:
        OSError: The stream is broken.
    """
    payload = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes], kind: msgspec.msgpack.Decoder[T]) -> T | None:
    """Return the next message, or None at the end of the stream."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    payload = stream.read(size)
    return kind.decode(payload) if len(payload) == size else None
