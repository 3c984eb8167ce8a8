"""The records of groups whose members have epochs: plain keys, and values of flexible fields
(KIP-482).

The first two bytes of a key are the kind of the record, and those of a value are its version, 0 in
all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from quorate.broker.coordinator.shards.coordinator_records import (
    INT32,
    CoordinatorRecordReader,
    UnknownRecord,
    compact_length,
    compact_text_field,
    text_field,
    unsigned_varint,
)
from quorate.common.types import ID_BYTES, TopicId

T = TypeVar("T")

VERSION: Final = b"\0\0"
NO_TAGS: Final = b"\0"

_KIND_BYTES: Final = 2


# -- fields that are written -------------------------------------------------------------------


def record_key(kind: int, group_id: str, about: str | None = None) -> bytes:
    """Encode the key of a record about a group, or about something in it, such as a member."""
    key = kind.to_bytes(_KIND_BYTES) + text_field(group_id)
    return key if about is None else key + text_field(about)


def optional_compact_text(text: str | None) -> bytes:
    """Encode a text, or null."""
    return compact_length(-1) if text is None else compact_text_field(text)


def array(items: Iterable[bytes]) -> bytes:
    """Encode elements that are encoded already."""
    encoded = list(items)
    return compact_length(len(encoded)) + b"".join(encoded)


def int32_array(numbers: Iterable[int]) -> bytes:
    """Encode numbers in the order in which they come."""
    return array(map(INT32.pack, numbers))


def tagged(value: bytes) -> bytes:
    """Encode a value as the only tagged field, with tag 0."""
    return b"\1\0" + unsigned_varint(len(value)) + value


# -- records that are read ---------------------------------------------------------------------


class FlexibleReader(CoordinatorRecordReader):
    """Reads flexible fields. Each method may raise UnknownRecord."""

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read elements, each by ``read``."""
        count = self.compact_length()
        if count > len(self._record):
            raise UnknownRecord(f"an array of {count} elements in {len(self._record)} bytes")
        return [read() for _ in range(count)]

    def compact_data(self) -> bytes:
        """Read bytes; null becomes empty bytes."""
        return self._take(max(0, self.compact_length()))

    def topic_id(self) -> TopicId:
        """Read the id of a topic."""
        return TopicId(self._take(ID_BYTES))


def kind_of(key: bytes) -> int:
    """Return the kind of the record with that key."""
    return int.from_bytes(key[:_KIND_BYTES])


def read_versioned(
    readers: Mapping[int, Callable[[FlexibleReader], T]], kind: int, value: bytes
) -> T:
    """Decode the value of a record of that kind.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = FlexibleReader(value)
    version = reader.int16()
    if version:
        raise UnknownRecord(f"value of version {version} for a key of version {kind}")
    return readers[kind](reader)
