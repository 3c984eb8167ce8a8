"""ShareFetch (78) and ShareAcknowledge (79) on the wire (KIP-932).

Their requests are decoded by hand: the types of acknowledgements, one byte for each record, are
taken as they come. The response to ShareFetch contains the log's own buffers, which are not copied.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.share.share_leader import ShareOutcome
from quorate.broker.coordinator.share.state.acknowledgements import AcknowledgementBatch
from quorate.broker.kafka.wire.primitives import (
    ELEMENTS_IN_A_STEP,
    Buffers,
    Cursor,
    append_length,
    append_string,
)
from quorate.common.types import Endpoint, TopicId
from quorate_proto.v1 import errors_pb2

T = TypeVar("T")

FIRST_FLEXIBLE_VERSION: Final = 0
FIRST_VERSION_WITH_MODE: Final = 2
"""From this version on, members may ask for no record more than they want (KIP-1206), and renew
locks (KIP-1222)."""
RECORD_LIMIT: Final = 1
"""The acquire mode in which a member gets no record more than it wants."""

_FETCH_1: Final = struct.Struct(">iiiiii")
_OFFSETS: Final = struct.Struct(">qq")
_ACQUIRED: Final = struct.Struct(">qqhx")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">iix")

SharePlace = tuple[TopicId, int]
"""The id of a topic, and a partition."""


class ShareFetchRequest(NamedTuple):
    """A decoded ShareFetch request, with what is acknowledged of each partition."""

    group_id: str
    member_id: str
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    acquire_mode: int
    renews: bool
    partitions: Mapping[SharePlace, Sequence[AcknowledgementBatch]]
    forgotten: Sequence[SharePlace]

    @property
    def acknowledges(self) -> bool:
        return any(self.partitions.values())


class ShareAcknowledgeRequest(NamedTuple):
    """A decoded ShareAcknowledge request."""

    group_id: str
    member_id: str
    session_epoch: int
    renews: bool
    partitions: Mapping[SharePlace, Sequence[AcknowledgementBatch]]


def decode_fetch(version: int, cursor: Cursor) -> Steps[ShareFetchRequest]:
    """Decode a ShareFetch request, in steps.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    group_id, member_id = cursor.text(flexible=True) or "", cursor.text(flexible=True) or ""
    epoch, max_wait_ms, min_bytes, max_bytes, max_records, batch_size = cursor.unpack(_FETCH_1)
    mode, renews = 0, False
    if version >= FIRST_VERSION_WITH_MODE:
        mode, renews = cursor.int8(), cursor.boolean()
    partitions = yield from _decode_topics(cursor)
    forgotten: list[SharePlace] = []
    for _ in range(cursor.array_length(flexible=True) or 0):
        topic_id = cursor.topic_id()
        numbers = range(cursor.array_length(flexible=True) or 0)
        forgotten += [(topic_id, cursor.int32()) for _ in numbers]
        cursor.skip_tagged_fields()
        yield
    cursor.skip_tagged_fields()
    return ShareFetchRequest(
        group_id,
        member_id,
        epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        max_records,
        batch_size,
        mode,
        renews,
        partitions,
        forgotten,
    )


def decode_acknowledge(version: int, cursor: Cursor) -> Steps[ShareAcknowledgeRequest]:
    """Decode a ShareAcknowledge request, in steps.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    group_id, member_id = cursor.text(flexible=True) or "", cursor.text(flexible=True) or ""
    epoch = cursor.int32()
    renews = cursor.boolean() if version >= FIRST_VERSION_WITH_MODE else False
    partitions = yield from _decode_topics(cursor)
    cursor.skip_tagged_fields()
    return ShareAcknowledgeRequest(group_id, member_id, epoch, renews, partitions)


def _decode_topics(cursor: Cursor) -> Steps[dict[SharePlace, list[AcknowledgementBatch]]]:
    partitions: dict[SharePlace, list[AcknowledgementBatch]] = {}
    for _ in range(cursor.array_length(flexible=True) or 0):
        topic_id = cursor.topic_id()
        for place in range(1, (cursor.array_length(flexible=True) or 0) + 1):
            partition = cursor.int32()
            batches = yield from _decode_batches(cursor)
            partitions.setdefault((topic_id, partition), []).extend(batches)
            cursor.skip_tagged_fields()
            if not place % ELEMENTS_IN_A_STEP:
                yield
        cursor.skip_tagged_fields()
    return partitions


def _decode_batches(cursor: Cursor) -> Steps[list[AcknowledgementBatch]]:
    batches: list[AcknowledgementBatch] = []
    for place in range(1, (cursor.array_length(flexible=True) or 0) + 1):
        first, last = cursor.unpack(_OFFSETS)
        types = bytes(cursor.slice(cursor.array_length(flexible=True) or 0))
        batches.append(AcknowledgementBatch(first, last, types))
        cursor.skip_tagged_fields()
        if not place % ELEMENTS_IN_A_STEP:
            yield
    return batches


_NOTHING: Final[Mapping[SharePlace, Any]] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """What the response says of one partition: what was fetched, and what became of
    acknowledgements."""

    fetched: ShareOutcome = ShareOutcome()
    acknowledge_code: int = errors_pb2.NONE
    acknowledge_message: str | None = None


class NodeAddress(NamedTuple):
    """A leader that the client is sent to."""

    node_id: int
    endpoint: Endpoint
    rack: str


class ShareFetchResponse(NamedTuple):
    """The response to a ShareFetch request, or its refusal."""

    error_code: int = errors_pb2.NONE
    error_message: str | None = None
    lock_duration_ms: int = 0
    partitions: Mapping[SharePlace, PartitionAnswer] = _NOTHING
    leaders: Mapping[SharePlace, tuple[int, int]] = _NOTHING
    """The leader and the leader epoch of partitions that are led elsewhere."""
    nodes: Sequence[NodeAddress] = ()


def encode_fetch(version: int, response: ShareFetchResponse) -> Steps[Buffers]:
    """Encode a response, in steps: headers, with the log's own buffers between them."""
    buffers: Buffers = []
    out = bytearray(_INT32.pack(0) + _INT16.pack(response.error_code))
    append_string(out, response.error_message, flexible=True)
    out += _INT32.pack(response.lock_duration_ms)
    topics = by_topic(response.partitions.items())
    append_length(out, len(topics), flexible=True)
    for topic_id, items in topics.items():
        out += topic_id
        append_length(out, len(items), flexible=True)
        for place, answer in items:
            leader = response.leaders.get(place, (0, 0))
            out = _append_partition(buffers, out, place[1], answer, leader)
            yield
        out.append(0)
    append_length(out, len(response.nodes), flexible=True)
    for node in response.nodes:
        out += _INT32.pack(node.node_id)
        append_string(out, node.endpoint.host, flexible=True)
        out += _INT32.pack(node.endpoint.port)
        append_string(out, node.rack or None, flexible=True)
        out.append(0)
    out.append(0)
    buffers.append(bytes(out))
    return buffers


def _append_partition(
    buffers: Buffers,
    out: bytearray,
    partition: int,
    answer: PartitionAnswer,
    leader: tuple[int, int],
) -> bytearray:
    fetched = answer.fetched
    out += _INT32.pack(partition) + _INT16.pack(fetched.error_code)
    append_string(out, fetched.error_message, flexible=True)
    out += _INT16.pack(answer.acknowledge_code)
    append_string(out, answer.acknowledge_message, flexible=True)
    out += _LEADER.pack(*leader)
    append_length(out, fetched.size, flexible=True)
    if fetched.chunks:
        buffers.append(bytes(out))
        buffers.extend(fetched.chunks)
        out = bytearray()
    append_length(out, len(fetched.acquired), flexible=True)
    for acquired in fetched.acquired:
        out += _ACQUIRED.pack(*acquired)
    out.append(0)
    return out


def by_topic(items: Iterable[tuple[SharePlace, T]]) -> dict[TopicId, list[tuple[SharePlace, T]]]:
    """Return items by the topic that they are about."""
    topics: dict[TopicId, list[tuple[SharePlace, T]]] = {}
    for place, item in items:
        topics.setdefault(place[0], []).append((place, item))
    return topics
