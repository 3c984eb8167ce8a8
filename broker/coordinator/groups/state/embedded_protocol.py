"""What consumers of the classic protocol say to each other inside JoinGroup and SyncGroup.

For the protocol type "consumer" Kafka prescribes the format, which brokers read only when a group
changes to the consumer protocol (KIP-848).

subscription  version i16 | topics | user data | from 1: owned partitions | from 2: generation i32 |
              from 3: rack
assignment    version i16 | topics, each with its partitions | user data

Later versions add fields behind, so they are read as the newest one that is known.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from quorate.broker.coordinator.shards.coordinator_records import (
    INT16,
    INT32,
    CoordinatorRecordReader,
    UnknownRecord,
    text_field,
)

CONSUMER: Final = "consumer"
"""The protocol type whose format is known."""

_FIRST_WITH_OWNED: Final = 1
_FIRST_WITH_GENERATION: Final = 2
_FIRST_WITH_RACK: Final = 3
_NEWEST: Final = 3
_NO_USER_DATA: Final = INT32.pack(-1)

NamedPartitions = Mapping[str, frozenset[int]]
"""Partitions by the name of their topic."""


class Subscription(NamedTuple):
    """What a member asks for. ``owned`` are the partitions that it consumes while it joins."""

    version: int
    topics: frozenset[str]
    owned: NamedPartitions
    rack_id: str | None


class Assignment(NamedTuple):
    """What a member is to consume. ``user_data`` is for the client's assignor alone."""

    partitions: NamedPartitions
    user_data: bytes


def read_subscription(data: bytes) -> Subscription:
    """Decode the metadata of a member that joins.

    Raises:
        UnknownRecord: it has another format.
    """
    reader = _Reader(data)
    version = reader.version()
    topics = frozenset(reader.text() for _ in reader.elements())
    reader.data()
    owned = reader.partitions() if version >= _FIRST_WITH_OWNED else {}
    if version >= _FIRST_WITH_GENERATION:
        reader.int32()
    rack_id = reader.optional_text() if version >= _FIRST_WITH_RACK else None
    return Subscription(version, topics, owned, rack_id or None)


def read_assignment(data: bytes) -> Assignment:
    """Decode an assignment. Empty data is the assignment of a member that has not got any yet.

    Raises:
        UnknownRecord: it has another format.
    """
    if not data:
        return Assignment({}, b"")
    reader = _Reader(data)
    reader.version()
    return Assignment(reader.partitions(), reader.data())


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode an assignment for a member whose subscription has that version."""
    parts = [INT16.pack(version), INT32.pack(len(partitions))]
    for name, own in partitions.items():
        numbers = sorted(own)
        parts += (text_field(name), INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join([*parts, _NO_USER_DATA])


class _Reader(CoordinatorRecordReader):
    """Reads the fields of both formats. Each method may raise UnknownRecord."""

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise UnknownRecord(f"version {version}")
        return min(version, _NEWEST)

    def elements(self) -> range:
        """Read how many elements an array has; each takes two bytes at least."""
        count = self.int32()
        if not 0 <= count <= len(self._record) // 2:
            raise UnknownRecord(f"an array of {count} elements in {len(self._record)} bytes")
        return range(count)

    def partitions(self) -> NamedPartitions:
        found: dict[str, frozenset[int]] = {}
        for _ in self.elements():
            name = self.text()
            own = frozenset(self.int32() for _ in self.elements())
            if own:
                found[name] = found.get(name, frozenset()) | own
        return found
