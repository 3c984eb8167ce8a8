"""Fetch (1): a consumer's long poll. No fetch sessions: every request names all its partitions.

The records of the answer are the log's own buffers, put between headers and written as they are.
"""

import struct
from dataclasses import dataclass
from typing import Final

from broker.config.listeners import FETCH_MAX_BYTES
from broker.kafka.codec import append_uvarint
from broker.kafka.cursor import Cursor
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.replication.api import FetchOutcome, FetchWant
from metadata_log.acls import AclOperation
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_FLEXIBLE_VERSION: Final = 12

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_REQUEST: Final = struct.Struct(">iiiib")
_SESSION: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">ihqq")
_THROTTLE_CODE_SESSION: Final = struct.Struct(">ihi")
_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0
_NO_PREFERRED_REPLICA: Final = _INT32.pack(-1)
_READ_COMMITTED: Final = 1
_NOT_AUTHORIZED: Final = FetchOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """``topics``: name → positions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str, list[FetchWant]]]


def decode(version: int, cursor: Cursor) -> FetchRequest:
    """Raises: MalformedRequest."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    _, max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.unpack(_REQUEST)
    session_id, session_epoch = _NO_SESSION, _FINAL_EPOCH
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        session_id, session_epoch = cursor.unpack(_SESSION)
    topics = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        name = cursor.text(flexible=flexible) or ""
        count = cursor.array_length(flexible=flexible) or 0
        topics.append((name, [_decode_partition(version, name, cursor) for _ in range(count)]))
        if flexible:
            cursor.skip_tagged_fields()
    return FetchRequest(
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics
    )


def _decode_partition(version: int, topic: str, cursor: Cursor) -> FetchWant:
    partition = cursor.int32()
    current_leader_epoch = cursor.int32() if version >= 9 else -1
    fetch_offset = cursor.int64()
    if version >= 12:
        cursor.int32()
    if version >= 5:
        cursor.int64()
    max_bytes = cursor.int32()
    if version >= FIRST_FLEXIBLE_VERSION:
        cursor.skip_tagged_fields()
    return FetchWant(
        TopicPartition(topic, partition), fetch_offset, max_bytes, current_leader_epoch
    )


def answer_bytes_max(services: KafkaServices, request: FetchRequest) -> int:
    """How much one answer may hold; a single batch may be larger."""
    return max(0, min(request.max_bytes, services.config[FETCH_MAX_BYTES]))


async def handle(
    services: KafkaServices, context: RequestContext, request: FetchRequest
) -> Buffers:
    refusal = _session_error(request)
    if refusal != errors_pb2.NONE:
        return encode(context.version, request, [], refusal)
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (topic for topic, _ in request.topics))
    max_bytes = answer_bytes_max(services, request)
    wants = [want for topic, wants in request.topics if topic in readable for want in wants]
    if not wants:
        found = []
    else:
        responses = services.memory.responses
        found = await services.replicas.fetch(
            wants,
            max_wait_ms=await responses.wait_for_room(max(0, request.max_wait_ms)),
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            room=context.lease,
        )
    remaining = iter(found)
    outcomes = [
        next(remaining) if topic in readable else _NOT_AUTHORIZED
        for topic, wants in request.topics
        for _ in wants
    ]
    return encode(context.version, request, outcomes)


def _session_error(request: FetchRequest) -> int:
    """Answering session id 0 to epoch 0 tells a client that it got no session; so whoever names
    one is thinking of another broker, or of an earlier life of this one."""
    if request.session_id != _NO_SESSION:
        return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
    if request.session_epoch not in (_FINAL_EPOCH, _FIRST_EPOCH):
        return errors_pb2.INVALID_FETCH_SESSION_EPOCH
    return errors_pb2.NONE


def encode(
    version: int,
    request: FetchRequest,
    outcomes: list[FetchOutcome],
    error_code: int = errors_pb2.NONE,
) -> Buffers:
    """The response body; ``outcomes`` in the order of the request's partitions."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = _Gathered()
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        out.small += _THROTTLE_CODE_SESSION.pack(0, error_code, _NO_SESSION)
    else:
        out.small += _INT32.pack(0)
    topics = request.topics if error_code == errors_pb2.NONE else []
    remaining = iter(outcomes)
    _append_length(out.small, len(topics), flexible)
    for topic, wants in topics:
        _append_name(out.small, topic, flexible)
        _append_length(out.small, len(wants), flexible)
        for want in wants:
            _append_partition(out, version, request, want, next(remaining))
        if flexible:
            out.small.append(0)
    if flexible:
        out.small.append(0)
    return out.buffers()


class _Gathered:
    """Header bytes collected in ``small``, records referred to in between."""

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
    out: _Gathered, version: int, request: FetchRequest, want: FetchWant, outcome: FetchOutcome
) -> None:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    high_watermark = outcome.high_watermark
    out.small += _PARTITION.pack(
        want.tp.partition, outcome.error_code, high_watermark, high_watermark
    )
    if version >= 5:
        out.small += _INT64.pack(outcome.log_start_offset)
    aborted_transactions = 0 if request.isolation_level == _READ_COMMITTED else -1
    _append_length(out.small, aborted_transactions, flexible)
    if version >= 11:
        out.small += _NO_PREFERRED_REPLICA
    _append_length(out.small, outcome.size, flexible)
    out.append_records(outcome)
    if flexible:
        out.small.append(0)


def _append_length(out: bytearray, length: int, flexible: bool) -> None:
    """Of an array or of bytes; -1: null."""
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)


def _append_name(out: bytearray, name: str, flexible: bool) -> None:
    raw = name.encode()
    if flexible:
        append_uvarint(out, len(raw) + 1)
    else:
        out += struct.pack(">h", len(raw))
    out += raw
