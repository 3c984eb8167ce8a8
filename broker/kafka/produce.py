"""Produce (0): batches in, one outcome per partition out.

Versions 0 to 2 are decoded because librdkafka looks for them before it will compress; the record
formats they were made for are refused batch by batch. Records are never copied here.
"""

import struct
from dataclasses import dataclass
from typing import Final

from broker.coordinator.topics import INTERNAL_TOPICS
from broker.errors import error_name
from broker.kafka.codec import append_uvarint
from broker.kafka.cursor import Cursor
from broker.kafka.requests import Buffers, CloseConnection, RequestContext
from broker.kafka.services import KafkaServices
from broker.log.admission import Origin
from broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ProduceEntry,
    ProduceOutcome,
)
from broker.security.authorizer import Rights
from metadata_log.acls import AclOperation, ResourceType
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_FLEXIBLE_VERSION: Final = 9

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INDEX_CODE_OFFSET: Final = struct.Struct(">ihq")
_INT64: Final = struct.Struct(">q")
_APPENDED: Final = struct.Struct(">ihqqq3s")
_NOTHING_SAID: Final = b"\x01\x00\x00"
"""Of a flexible version: no record errors, a message that is null, no tagged fields."""
_NULL_STRING: Final = -1
_AS_TRANSACTION: Final = AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID
_NOT_AUTHORIZED: Final = ProduceOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)
_INTERNAL: Final = ProduceOutcome(
    errors_pb2.INVALID_TOPIC_EXCEPTION, "coordinators alone write to their topics"
)


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """``topics``: name → (partition, records; None where the wire says null)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[tuple[int, memoryview | None]]]]


def decode(version: int, cursor: Cursor) -> ProduceRequest:
    """Raises: MalformedRequest."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    transactional_id = cursor.text(flexible=flexible) if version >= 3 else None
    acks, timeout_ms = cursor.unpack(_ACKS_TIMEOUT)
    topics = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        name = cursor.text(flexible=flexible) or ""
        partitions = []
        for _ in range(cursor.array_length(flexible=flexible) or 0):
            partitions.append((cursor.int32(), cursor.data(flexible=flexible)))
            if flexible:
                cursor.skip_tagged_fields()
        topics.append((name, partitions))
        if flexible:
            cursor.skip_tagged_fields()
    if flexible:
        cursor.skip_tagged_fields()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def throttle_place(version: int) -> int | None:
    """The last field, but for the number of tagged ones."""
    if version < 1:
        return None
    return -5 if version >= FIRST_FLEXIBLE_VERSION else -4


async def handle(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> Buffers:
    outcomes = await _produce(services, context, request)
    if request.acks == ACKS_NONE:
        _tell_by_closing(request, outcomes)
        return []
    return [encode(context.version, request, outcomes)]


async def _produce(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> list[ProduceOutcome]:
    """One outcome per partition, in the order of the request."""
    rights = services.authorizer.rights_of(context)
    refusal = _refusal(request, rights)
    count = sum([len(partitions) for _, partitions in request.topics])
    if refusal is not None:
        return [refusal] * count
    allowed = rights.topics(AclOperation.WRITE, (topic for topic, _ in request.topics))
    writable = allowed - INTERNAL_TOPICS
    owner = request.transactional_id
    origin = Origin.CLIENT if owner is None else Origin.TRANSACTIONAL_CLIENT
    entries = [
        ProduceEntry(
            TopicPartition(topic, index), records if records is not None else b"", origin, owner
        )
        for topic, partitions in request.topics
        if topic in writable
        for index, records in partitions
    ]
    outcomes: list[ProduceOutcome] = []
    if entries:
        outcomes = await services.replicas.produce(entries, request.acks, request.timeout_ms)
    if len(outcomes) == count:
        return outcomes
    remaining = iter(outcomes)
    refused = {topic: _INTERNAL for topic in allowed & INTERNAL_TOPICS}
    return [
        next(remaining) if topic in writable else refused.get(topic, _NOT_AUTHORIZED)
        for topic, partitions in request.topics
        for _ in partitions
    ]


def _refusal(request: ProduceRequest, rights: Rights) -> ProduceOutcome | None:
    if request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
        return ProduceOutcome(
            errors_pb2.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1"
        )
    transactional_id = request.transactional_id
    if transactional_id is None or rights.may(*_AS_TRANSACTION, transactional_id):
        return None
    return ProduceOutcome(
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        rights.refusal(*_AS_TRANSACTION, transactional_id),
    )


def _tell_by_closing(request: ProduceRequest, outcomes: list[ProduceOutcome]) -> None:
    """acks=0 gets no answer, so a closed connection is how its client learns to look around."""
    failed = next((outcome for outcome in outcomes if outcome.error_code), None)
    if failed is not None:
        topics = ", ".join(topic for topic, _ in request.topics)
        name = error_name(failed.error_code)
        detail = f": {failed.error_message}" if failed.error_message else ""
        raise CloseConnection(f"produce with acks=0 to {topics} failed with {name}{detail}")


def encode(version: int, request: ProduceRequest, outcomes: list[ProduceOutcome]) -> bytes:
    """The response body; ``outcomes`` in the order of the request's partitions."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = bytearray()
    remaining = iter(outcomes)
    _append_array_length(out, len(request.topics), flexible)
    for topic, partitions in request.topics:
        _append_string(out, topic, flexible)
        _append_array_length(out, len(partitions), flexible)
        for index, _ in partitions:
            _append_partition(out, version, index, next(remaining))
        if flexible:
            out.append(0)
    if version >= 1:
        out += _INT32.pack(0)
    if flexible:
        out.append(0)
    return bytes(out)


def _append_partition(out: bytearray, version: int, index: int, outcome: ProduceOutcome) -> None:
    if version >= FIRST_FLEXIBLE_VERSION and outcome.error_message is None:
        out += _APPENDED.pack(
            index,
            outcome.error_code,
            outcome.base_offset,
            outcome.log_append_time_ms,
            outcome.log_start_offset,
            _NOTHING_SAID,
        )
        return
    out += _INDEX_CODE_OFFSET.pack(index, outcome.error_code, outcome.base_offset)
    if version >= 2:
        out += _INT64.pack(outcome.log_append_time_ms)
    if version >= 5:
        out += _INT64.pack(outcome.log_start_offset)
    if version >= 8:
        flexible = version >= FIRST_FLEXIBLE_VERSION
        _append_array_length(out, len(outcome.record_errors), flexible)
        for record_error in outcome.record_errors:
            out += _INT32.pack(record_error.place)
            _append_string(out, record_error.message, flexible)
            if flexible:
                out.append(0)
        _append_string(out, outcome.error_message, flexible)
        if flexible:
            out.append(0)


def _append_array_length(out: bytearray, length: int, flexible: bool) -> None:
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)


def _append_string(out: bytearray, text: str | None, flexible: bool) -> None:
    raw = b"" if text is None else text.encode()
    length = _NULL_STRING if text is None else len(raw)
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += struct.pack(">h", length)
    out += raw
