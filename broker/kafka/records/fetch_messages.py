"""Fetch (1) on the wire: its request and its response, in every version."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.records.current_leaders import NO_LEADERS, CurrentLeaders, Leader
from quorate.broker.kafka.wire.primitives import (
    ELEMENTS_IN_A_STEP,
    Buffers,
    Cursor,
    append_length,
    append_topic,
)
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.api import FetchOutcome, FetchPartition
from quorate.common.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_FLEXIBLE_VERSION: Final = 12

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
"""The session epoch of a request that does not want a session, and ends the one that it names."""

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_RACK: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
"""From this version on, topics have ids instead of names (KIP-516)."""
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_REPLICA_STATE_TAG: Final = 1
FIRST_VERSION_WITH_LEADERS: Final = 16
"""From this version on, a client that asked the wrong broker is told the leader (KIP-951)."""
_LEADER_TAG: Final = 1
_REQUEST: Final = struct.Struct(">iiiib")
_REQUEST_15: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iq8xi")
_PARTITION_9: Final = struct.Struct(">iiq8xi")
_PARTITION_12: Final = struct.Struct(">iiq4x8xi")
"""Partition, current leader epoch (from version 9 on), offset, maximum of bytes. The skipped
bytes contain fields that only Kafka's followers use: the last fetched epoch and the start of
their log.
"""
_NOT_CHECKED: Final = -1
_NO_LENGTH: Final = -1
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">ihqq")
_THROTTLE_CODE_SESSION: Final = struct.Struct(">ihi")
_PRODUCER_FIRST_OFFSET: Final = struct.Struct(">qq")
_READ_COMMITTED: Final = 1
_CONSUMER_ID: Final = -1


FetchTopic: TypeAlias = tuple[str, TopicId | None, list[FetchPartition]]
"""A topic, with the positions to fetch from. It has an id if the client has named it by its id; the
name is empty then if no topic has that id.
"""

WirePositions: TypeAlias = list[tuple[int, ...]]
"""The partition, the current leader epoch, the offset and the maximum of bytes of each position."""


class FetchRequest(msgspec.Struct, frozen=True):
    """A decoded Fetch request.

    ``forgotten`` are the partitions that the client removes from its session. A client that names
    topics by their ids has them in ``unnamed``, until ``fetch_by_id`` finds their names.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: Sequence[TopicPartition | TopicIdPartition]
    rack: str
    replica_id: int = _CONSUMER_ID
    """Negative for consumers. A follower of Kafka's would send the id of its broker."""
    unnamed: list[tuple[TopicId, WirePositions]] | None = None
    """The topics of a request from version 13 on, and None in older versions."""


def decode(version: int, cursor: Cursor) -> Steps[FetchRequest]:
    """Decode a request, in steps.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    flexible = version >= FIRST_FLEXIBLE_VERSION
    replica_id = _CONSUMER_ID
    if version < _FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.unpack(_REQUEST)
    else:
        max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.unpack(_REQUEST_15)
    session_id, session_epoch = NO_SESSION, FINAL_EPOCH
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        session_id, session_epoch = cursor.unpack(_SESSION)
    topics: list[FetchTopic] = []
    unnamed: list[tuple[TopicId, WirePositions]] | None = None
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        unnamed = yield from _decode_unnamed(cursor)
    else:
        topics = yield from _decode_topics(version, flexible, cursor)
    forgotten: Sequence[TopicPartition | TopicIdPartition] = ()
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        forgotten = yield from _decode_forgotten(version, flexible, cursor)
    rack = ""
    if version >= _FIRST_VERSION_WITH_RACK:
        rack = cursor.text(flexible=flexible) or ""
    if version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id = _replica_id(cursor.tagged_fields())
    elif flexible:
        cursor.skip_tagged_fields()
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
        replica_id,
        unnamed,
    )


def _replica_id(tagged_fields: Mapping[int, memoryview]) -> int:
    """Return the replica id of the ReplicaState, which consumers leave out (KIP-903)."""
    state = tagged_fields.get(_REPLICA_STATE_TAG)
    return _CONSUMER_ID if state is None else Cursor(state).int32()


def _decode_topics(version: int, flexible: bool, cursor: Cursor) -> Steps[list[FetchTopic]]:
    topics: list[FetchTopic] = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        name = cursor.text(flexible=flexible) or ""
        count = cursor.array_length(flexible=flexible) or 0
        partitions: list[FetchPartition] = []
        for place in range(1, count + 1):
            partitions.append(_decode_partition(version, name, cursor))
            if not place % ELEMENTS_IN_A_STEP:
                yield
        topics.append((name, None, partitions))
        if flexible:
            cursor.skip_tagged_fields()
        if not len(topics) % ELEMENTS_IN_A_STEP:
            yield
    return topics


def _decode_unnamed(cursor: Cursor) -> Steps[list[tuple[TopicId, WirePositions]]]:
    """Decode topics that are named by their ids. What follows the fixed fields of a partition in
    tagged fields, only Kafka's followers use.
    """
    topics: list[tuple[TopicId, WirePositions]] = []
    for _ in range(cursor.array_length(flexible=True) or 0):
        topic_id = cursor.topic_id()
        positions: WirePositions = []
        for place in range(1, (cursor.array_length(flexible=True) or 0) + 1):
            positions.append(cursor.unpack(_PARTITION_12))
            cursor.skip_tagged_fields()
            if not place % ELEMENTS_IN_A_STEP:
                yield
        topics.append((topic_id, positions))
        cursor.skip_tagged_fields()
        if not len(topics) % ELEMENTS_IN_A_STEP:
            yield
    return topics


def _decode_partition(version: int, topic: str, cursor: Cursor) -> FetchPartition:
    leader_epoch = _NOT_CHECKED
    if version >= FIRST_FLEXIBLE_VERSION:
        partition, leader_epoch, offset, max_bytes = cursor.unpack(_PARTITION_12)
        cursor.skip_tagged_fields()
    elif version >= 9:
        partition, leader_epoch, offset, max_bytes = cursor.unpack(_PARTITION_9)
    else:
        layout = _PARTITION_5 if version >= 5 else _PARTITION_4
        partition, offset, max_bytes = cursor.unpack(layout)
    return FetchPartition(TopicPartition(topic, partition), offset, max_bytes, leader_epoch)


def _decode_forgotten(
    version: int, flexible: bool, cursor: Cursor
) -> Steps[list[TopicPartition | TopicIdPartition]]:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    forgotten: list[TopicPartition | TopicIdPartition] = []
    for topics in range(1, (cursor.array_length(flexible=flexible) or 0) + 1):
        of_topic: Callable[[int], TopicPartition | TopicIdPartition]
        if by_id:
            of_topic = partial(TopicIdPartition, cursor.topic_id())
        else:
            of_topic = partial(TopicPartition, cursor.text(flexible=flexible) or "")
        for place in range(1, (cursor.array_length(flexible=flexible) or 0) + 1):
            forgotten.append(of_topic(cursor.int32()))
            if not place % ELEMENTS_IN_A_STEP:
                yield
        if flexible:
            cursor.skip_tagged_fields()
        if not topics % ELEMENTS_IN_A_STEP:
            yield
    return forgotten


TopicOutcomes: TypeAlias = Iterable[tuple[str | TopicId, Sequence[tuple[int, FetchOutcome]]]]
"""Each topic, by name or from version 13 on by id, with the outcomes of its partitions."""


class FetchResponse(NamedTuple):
    """The response to a Fetch request, or its refusal.

    ``leaders`` are those of partitions that this broker does not lead, or not in that epoch.
    """

    isolation_level: int
    topics: TopicOutcomes = ()
    error_code: int = errors_pb2.NONE
    session_id: int = NO_SESSION
    leaders: CurrentLeaders = NO_LEADERS


def encode(version: int, response: FetchResponse) -> Steps[Buffers]:
    """Encode a response, in steps. It consists of headers, with the log's own buffers between
    them, which are not copied.
    """
    isolation_level, topics, error_code, session_id, leaders = response
    flexible = version >= FIRST_FLEXIBLE_VERSION
    listed = tuple(topics)
    out = _ResponseBuffers()
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        out.small += _THROTTLE_CODE_SESSION.pack(0, error_code, session_id)
    else:
        out.small += _INT32.pack(0)
    append_length(out.small, len(listed), flexible)
    for topics_done, (topic, partitions) in enumerate(listed, start=1):
        append_topic(out.small, topic, flexible)
        append_length(out.small, len(partitions), flexible)
        for place, (partition, outcome) in enumerate(partitions, start=1):
            leader = leaders.of.get((topic, partition)) if leaders.of else None
            _append_partition(out, version, isolation_level, partition, outcome, leader)
            if not place % ELEMENTS_IN_A_STEP:
                yield
        if flexible:
            out.small.append(0)
        if not topics_done % ELEMENTS_IN_A_STEP:
            yield
    if leaders.nodes:
        leaders.append_endpoints(out.small)
    elif flexible:
        out.small.append(0)
    return out.buffers()


class _ResponseBuffers:
    """Collects a response: header bytes in ``small``, and between them references to records."""

    def __init__(self) -> None:
        self.small = bytearray()
        self._buffers: Buffers = []

    def append_records(self, outcome: FetchOutcome) -> None:
        if outcome.chunks:
            self._buffers.append(bytes(self.small))
            self._buffers.extend(outcome.chunks)
            self.small.clear()

    def buffers(self) -> Buffers:
        return [*self._buffers, bytes(self.small)] if self.small else self._buffers


def _append_partition(
    out: _ResponseBuffers,
    version: int,
    isolation_level: int,
    partition: int,
    outcome: FetchOutcome,
    leader: Leader | None,
) -> None:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out.small += _PARTITION.pack(
        partition, outcome.error_code, outcome.high_watermark, outcome.last_stable_offset
    )
    if version >= 5:
        out.small += _INT64.pack(outcome.log_start_offset)
    if isolation_level == _READ_COMMITTED:
        _append_aborted(out.small, outcome.aborted_transactions, flexible)
    else:
        append_length(out.small, _NO_LENGTH, flexible)
    if version >= 11:
        out.small += _INT32.pack(outcome.preferred_read_replica)
    append_length(out.small, outcome.size, flexible)
    out.append_records(outcome)
    if leader is not None:
        leader.append(out.small, _LEADER_TAG)
    elif flexible:
        out.small.append(0)


def _append_aborted(out: bytearray, aborted: Sequence[AbortedTransaction], flexible: bool) -> None:
    append_length(out, len(aborted), flexible)
    for each in aborted:
        out += _PRODUCER_FIRST_OFFSET.pack(each.producer_id, each.first_offset)
        if flexible:
            out.append(0)
