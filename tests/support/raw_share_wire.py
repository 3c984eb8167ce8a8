"""What members of share groups and brokers say to each other, in a few lines (KIP-932).

Requests are made and answers are read with ``struct`` alone, so hundreds of members fit in one
process and cost next to nothing beside the brokers.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.common.types import ID_BYTES, TopicId
from tests.support.raw_members import Connection, Reader, text

HEARTBEAT: Final = 76, 1
SHARE_FETCH: Final = 78, 2
SHARE_ACKNOWLEDGE: Final = 79, 2
METADATA: Final = 3, 12
LIST_OFFSETS: Final = 2, 4

LEAVING: Final = -1
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_BYTES: Final = 16 << 20
_LATEST: Final = -1
_NO_TAGS: Final = b"\0"

Place = tuple[TopicId, int]
"""The id of a topic, and a partition."""


class AcquiredBatch(NamedTuple):
    """Records in a row that were handed out for the ``delivery_count``-th time."""

    first: int
    last: int
    delivery_count: int


class FetchedPlace(NamedTuple):
    """What a ShareFetch says of one partition; ``records`` are its record batches."""

    error_code: int
    acknowledge_code: int
    records: bytes
    acquired: Sequence[AcquiredBatch]


class ShareFetched(NamedTuple):
    """The answer to a ShareFetch."""

    error_code: int
    lock_ms: int
    places: Mapping[Place, FetchedPlace]


class Acknowledgement(NamedTuple):
    """What a member says of the records from ``first`` to ``last``."""

    first: int
    last: int
    kind: int


class Heartbeat(NamedTuple):
    """The answer to a heartbeat; ``assigned`` is None if nothing has changed."""

    error_code: int
    member_epoch: int
    interval_ms: int
    assigned: frozenset[Place] | None


class PlaceLeader(NamedTuple):
    """The leader of a partition as host:port, and its leader epoch."""

    address: str
    leader_epoch: int


# -- requests --------------------------------------------------------------------------------------


def heartbeat_body(
    group_id: str, member_id: str, epoch: int, topics: Iterable[str] | None
) -> bytes:
    """A ShareGroupHeartbeat; ``topics`` is what the member subscribes to, if that changes."""
    names = b"\0" if topics is None else _array([_text(name) for name in topics])
    member = _text(group_id) + _text(member_id) + struct.pack(">i", epoch)
    return _NO_TAGS + member + b"\0" + names + _NO_TAGS


def share_fetch_body(
    member: tuple[str, str],
    epoch: int,
    *,
    max_wait_ms: int,
    max_records: int,
    places: Iterable[Place],
    forgotten: Iterable[Place] = (),
) -> bytes:
    """A ShareFetch of a member, by its group id and member id, that acknowledges nothing."""
    numbers = (epoch, max_wait_ms, 1, _MAX_BYTES, max_records, max_records)
    added = [(place, struct.pack(">i", place[1]) + b"\1" + _NO_TAGS) for place in places]
    removed = [(place, struct.pack(">i", place[1])) for place in forgotten]
    return b"".join(
        (
            _NO_TAGS,
            *map(_text, member),
            struct.pack(">iiiiii", *numbers),
            b"\1\0",  # No record more than it wants, and no lock is renewed.
            _by_topic(added),
            _by_topic(removed),
            _NO_TAGS,
        )
    )


def acknowledge_body(
    member: tuple[str, str],
    epoch: int,
    said: Mapping[Place, Sequence[Acknowledgement]],
    *,
    renews: bool = False,
) -> bytes:
    """A ShareAcknowledge of a member, by its group id and member id."""
    places = [
        (place, struct.pack(">i", place[1]) + _array(map(_acknowledged, some)) + _NO_TAGS)
        for place, some in said.items()
    ]
    begin = _NO_TAGS + b"".join(map(_text, member)) + struct.pack(">i?", epoch, renews)
    return begin + _by_topic(places) + _NO_TAGS


def _acknowledged(said: Acknowledgement) -> bytes:
    return struct.pack(">qqbbb", said.first, said.last, 2, said.kind, 0)


def _by_topic(items: Iterable[tuple[Place, bytes]]) -> bytes:
    topics: dict[TopicId, list[bytes]] = {}
    for (topic_id, _), item in items:
        topics.setdefault(topic_id, []).append(item)
    return _array(topic_id + _array(some) + _NO_TAGS for topic_id, some in topics.items())


def _array(items: Iterable[bytes]) -> bytes:
    known = list(items)
    return _varint(len(known) + 1) + b"".join(known)


def _text(value: str) -> bytes:
    raw = value.encode()
    return _varint(len(raw) + 1) + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- answers ---------------------------------------------------------------------------------------


class CompactReader(Reader):
    """Reads an answer of a flexible version, behind the tags of its header."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer)
        self.tags()

    def int64(self) -> int:
        return self._int(8)

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.take(1)[0]
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    def count(self) -> int:
        """The number of items of an array, or of bytes; null has none."""
        return max(0, self.varint() - 1)

    def compact_text(self) -> str:
        return self.take(self.count()).decode()

    def topic_id(self) -> TopicId:
        return TopicId(self.take(ID_BYTES))

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def read_heartbeat(answer: bytes) -> Heartbeat:
    reader = CompactReader(answer)
    reader.skip(4)
    code, _, _ = reader.int16(), reader.compact_text(), reader.compact_text()
    epoch, interval_ms = reader.int32(), reader.int32()
    if reader.take(1)[:1] != b"\1":
        return Heartbeat(code, epoch, interval_ms, None)
    assigned: set[Place] = set()
    for _ in range(reader.count()):
        topic_id = reader.topic_id()
        assigned.update([(topic_id, reader.int32()) for _ in range(reader.count())])
        reader.tags()
    return Heartbeat(code, epoch, interval_ms, frozenset(assigned))


def read_share_fetch(answer: bytes) -> ShareFetched:
    reader = CompactReader(answer)
    reader.skip(4)
    code, _, lock_ms = reader.int16(), reader.compact_text(), reader.int32()
    places: dict[Place, FetchedPlace] = {}
    for _ in range(reader.count()):
        topic_id = reader.topic_id()
        for _ in range(reader.count()):
            place = topic_id, reader.int32()
            fetch_code, _ = reader.int16(), reader.compact_text()
            acknowledge_code, _ = reader.int16(), reader.compact_text()
            reader.skip(8)
            reader.tags()
            records = reader.take(reader.count())
            acquired = [_acquired(reader) for _ in range(reader.count())]
            reader.tags()
            places[place] = FetchedPlace(fetch_code, acknowledge_code, records, acquired)
        reader.tags()
    return ShareFetched(code, lock_ms, places)


def _acquired(reader: CompactReader) -> AcquiredBatch:
    acquired = AcquiredBatch(reader.int64(), reader.int64(), reader.int16())
    reader.tags()
    return acquired


def read_acknowledge(answer: bytes) -> tuple[int, dict[Place, int]]:
    """Return the error code of all, and that of each partition."""
    reader = CompactReader(answer)
    reader.skip(4)
    code, _ = reader.int16(), reader.compact_text()
    reader.skip(4)
    places: dict[Place, int] = {}
    for _ in range(reader.count()):
        topic_id = reader.topic_id()
        for _ in range(reader.count()):
            place = topic_id, reader.int32()
            places[place], _ = reader.int16(), reader.compact_text()
            reader.skip(8)
            reader.tags()
            reader.tags()
        reader.tags()
    return code, places


# -- questions to any broker -----------------------------------------------------------------------


async def leaders_of(connection: Connection, topic: str) -> dict[Place, PlaceLeader]:
    """Return the leaders of the partitions of a topic, as this broker knows them; those without a
    leader are left out."""
    asked = _array([bytes(ID_BYTES) + _text(topic) + _NO_TAGS])
    answer = await connection.call(METADATA, _NO_TAGS + asked + b"\0\0" + _NO_TAGS)
    reader = CompactReader(answer)
    reader.skip(4)
    brokers: dict[int, str] = {}
    for _ in range(reader.count()):
        node = reader.int32()
        brokers[node] = f"{reader.compact_text()}:{reader.int32()}"
        reader.compact_text()
        reader.tags()
    reader.compact_text()
    reader.skip(4)
    leaders: dict[Place, PlaceLeader] = {}
    for _ in range(reader.count()):
        reader.skip(2)
        reader.compact_text()
        topic_id = reader.topic_id()
        reader.skip(1)
        for _ in range(reader.count()):
            reader.skip(2)
            partition, leader, epoch = reader.int32(), reader.int32(), reader.int32()
            for _ in range(3):
                reader.skip(4 * reader.count())
            reader.tags()
            if leader in brokers:
                leaders[topic_id, partition] = PlaceLeader(brokers[leader], epoch)
        reader.skip(4)
        reader.tags()
    return leaders


async def leads_in(connection: Connection, topic: str, epochs: Mapping[int, int]) -> frozenset[int]:
    """Return those partitions that the broker leads in exactly the leader epoch that is named."""
    items = [struct.pack(">iiq", partition, epoch, _LATEST) for partition, epoch in epochs.items()]
    begin = struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">i", len(items))
    reader = Reader(await connection.call(LIST_OFFSETS, begin + b"".join(items)))
    reader.skip(8)
    reader.text()
    found: set[int] = set()
    for _ in range(reader.int32()):
        partition, code = reader.int32(), reader.int16()
        reader.skip(20)
        if not code:
            found.add(partition)
    return frozenset(found)
