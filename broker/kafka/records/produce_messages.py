"""Produce (0) on the wire: its request and its response, in every version."""

import struct
from typing import Final, NamedTuple, TypeAlias

import msgspec

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.records.current_leaders import NO_LEADERS, CurrentLeaders, Leader
from quorate.broker.kafka.wire.primitives import (
    ELEMENTS_IN_A_STEP,
    Buffers,
    Cursor,
    append_length,
    append_string,
    append_topic,
)
from quorate.broker.replication.api import ProduceOutcome
from quorate.common.types import ID_BYTES, TopicId

FIRST_FLEXIBLE_VERSION: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
"""Versions 11 and 12 have the layout of 10 (KIP-890). From 13 on topics have no names (KIP-516)."""

FIRST_VERSION_WITH_LEADERS: Final = 10
"""From this version on, a client that asked the wrong broker is told the leader (KIP-951)."""
_LEADER_TAG: Final = 0

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_SMALL_HEAD: Final = struct.Struct(">BhiB")
_SMALL_PARTITION: Final = struct.Struct(">iBBB")
_INDEX_CODE_OFFSET: Final = struct.Struct(">ihq")
_INT64: Final = struct.Struct(">q")
_APPENDED: Final = struct.Struct(">ihqqq3s")
_NO_ERRORS: Final = b"\x01\x00\x00"
"""The end of a partition in a flexible version, without record errors, error message and tagged
fields.
"""


ProducedTopics: TypeAlias = list[tuple[str | TopicId, list[tuple[int, memoryview | None]]]]
"""Each topic, by name or from version 13 on by id, with its partitions and their records. The
records are None if they are null on the wire.
"""


class ProduceRequest(msgspec.Struct, frozen=True):
    """A decoded Produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: ProducedTopics


class ProduceResponse(NamedTuple):
    """The outcome of each partition, in the order of the request.

    ``topics`` are the topics of the request, or None if the client expects no response (acks=0).
    ``leaders`` are those of partitions that this broker does not lead.
    """

    topics: ProducedTopics | None
    outcomes: list[ProduceOutcome]
    leaders: CurrentLeaders = NO_LEADERS


def decode(version: int, cursor: Cursor) -> Steps[ProduceRequest]:
    """Decode a request, in steps.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    flexible = version >= FIRST_FLEXIBLE_VERSION
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    transactional_id = cursor.text(flexible=flexible) if version >= 3 else None
    acks, timeout_ms = cursor.unpack(_ACKS_TIMEOUT)
    topics: ProducedTopics = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        topic = cursor.topic_id() if by_id else cursor.text(flexible=flexible) or ""
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(cursor.array_length(flexible=flexible) or 0):
            partitions.append((cursor.int32(), cursor.data(flexible=flexible)))
            if flexible:
                cursor.skip_tagged_fields()
            if not len(partitions) % ELEMENTS_IN_A_STEP:
                yield
        topics.append((topic, partitions))
        if flexible:
            cursor.skip_tagged_fields()
        if not len(topics) % ELEMENTS_IN_A_STEP:
            yield
    if flexible:
        cursor.skip_tagged_fields()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


class _Unusual(Exception):
    """The request is not one that ``decode_small`` reads."""


def decode_small(version: int, cursor: Cursor) -> ProduceRequest | None:
    """Decode a request as most clients send them, in one pass over its bytes.

    Return None for any other one, which ``decode`` reads or refuses. That is an old version, one
    with a transactional id, tagged fields, null records or long arrays, and whatever is malformed.
    """
    if version < FIRST_FLEXIBLE_VERSION:
        return None
    view, at = cursor.rest()
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    topics: ProducedTopics = []
    try:
        transactional_id, acks, timeout_ms, count = _SMALL_HEAD.unpack_from(view, at)
        elements = _below_128(count) - 1
        at += _SMALL_HEAD.size
        for _ in range(count - 1):
            topic: str | TopicId
            if by_id:
                end = at + ID_BYTES
                topic = TopicId(bytes(view[at:end]))
            else:
                end = at + _below_128(view[at])
                topic = str(view[at + 1 : end], "utf-8")
            partition_count = _below_128(view[end]) - 1
            partitions, at = _small_partitions(view, end + 1, partition_count)
            topics.append((topic, partitions))
            elements += partition_count
        has_tags = view[at]
    except (IndexError, struct.error, UnicodeDecodeError, _Unusual):
        return None
    if transactional_id or has_tags or not cursor.read_to(at + 1, elements):
        return None
    return ProduceRequest(None, acks, timeout_ms, topics)


def _small_partitions(
    view: memoryview, at: int, count: int
) -> tuple[list[tuple[int, memoryview | None]], int]:
    """Return the partitions of a topic, and the offset of what follows it."""
    partitions: list[tuple[int, memoryview | None]] = []
    for _ in range(count):
        index, size, more, most = _SMALL_PARTITION.unpack_from(view, at)
        at += 5
        if size & 0x80:
            size, at = size & 0x7F | (more & 0x7F) << 7, at + 1
            if more & 0x80:
                size, at = size | _below_128(most) << 14, at + 1
        end = at + size - 1
        # Behind the records there is a byte, which says that there are no tagged fields.
        if not size or view[end]:
            raise _Unusual
        partitions.append((index, view[at:end]))
        at = end + 1
    if view[at]:
        raise _Unusual
    return partitions, at + 1


def _below_128(length: int) -> int:
    """Return the first byte of a length if it is the whole length, and not that of null."""
    if not 0 < length < 0x80:
        raise _Unusual
    return length


def throttle_place(version: int) -> int | None:
    """Return the position of the throttle time. It is the last field, before any tagged fields,
    whose number is the last byte of the first piece.
    """
    if version < 1:
        return None
    return -5 if version >= FIRST_FLEXIBLE_VERSION else -4


def encode(version: int, response: ProduceResponse) -> Steps[Buffers]:
    """Encode a response, in steps. It is empty if the client expects none."""
    topics = response.topics
    if topics is None:
        return []
    flexible = version >= FIRST_FLEXIBLE_VERSION
    leader_of = response.leaders.of.get
    out = bytearray()
    remaining = iter(response.outcomes)
    append_length(out, len(topics), flexible)
    for topics_done, (topic, partitions) in enumerate(topics, start=1):
        append_topic(out, topic, flexible)
        append_length(out, len(partitions), flexible)
        for place, (index, _) in enumerate(partitions, start=1):
            leader = leader_of((topic, index)) if response.leaders.of else None
            _append_partition(out, version, index, next(remaining), leader)
            if not place % ELEMENTS_IN_A_STEP:
                yield
        if flexible:
            out.append(0)
        if not topics_done % ELEMENTS_IN_A_STEP:
            yield
    if version >= 1:
        out += _INT32.pack(0)
    if not response.leaders.nodes:
        if flexible:
            out.append(0)
        return [bytes(out)]
    tags = bytearray()
    response.leaders.append_endpoints(tags)
    out.append(tags[0])
    return [bytes(out), bytes(tags[1:])]


def _append_partition(
    out: bytearray, version: int, index: int, outcome: ProduceOutcome, leader: Leader | None
) -> None:
    if version >= FIRST_FLEXIBLE_VERSION and outcome.error_message is None and leader is None:
        out += _APPENDED.pack(
            index,
            outcome.error_code,
            outcome.base_offset,
            outcome.log_append_time_ms,
            outcome.log_start_offset,
            _NO_ERRORS,
        )
        return
    out += _INDEX_CODE_OFFSET.pack(index, outcome.error_code, outcome.base_offset)
    if version >= 2:
        out += _INT64.pack(outcome.log_append_time_ms)
    if version >= 5:
        out += _INT64.pack(outcome.log_start_offset)
    if version >= 8:
        flexible = version >= FIRST_FLEXIBLE_VERSION
        append_length(out, len(outcome.record_errors), flexible)
        for record_error in outcome.record_errors:
            out += _INT32.pack(record_error.place)
            append_string(out, record_error.message, flexible)
            if flexible:
                out.append(0)
        append_string(out, outcome.error_message, flexible)
        if leader is not None:
            leader.append(out, _LEADER_TAG)
        elif flexible:
            out.append(0)
