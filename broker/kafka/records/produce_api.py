"""Produce (0): append record batches, and return one outcome for each partition.

Versions 0 to 2 are decoded because librdkafka checks for them before it compresses. The record
formats of these versions are refused batch by batch. Records are never copied here.
"""

import dataclasses
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from quorate.broker.common.errors import error_name
from quorate.broker.common.steps import Steps
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.primitives import (
    ELEMENTS_IN_A_STEP,
    Buffers,
    Cursor,
    append_length,
    append_string,
)
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ProduceEntry,
    ProduceOutcome,
)
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

FIRST_FLEXIBLE_VERSION: Final = 9

PARTITIONS_AT_ONCE: Final = 64
"""The number of partitions up to which a request is appended without a break."""

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INDEX_CODE_OFFSET: Final = struct.Struct(">ihq")
_INT64: Final = struct.Struct(">q")
_APPENDED: Final = struct.Struct(">ihqqq3s")
_NO_ERRORS: Final = b"\x01\x00\x00"
"""The end of a partition in a flexible version, without record errors, error message and tagged
fields.
"""
_TRANSACTIONAL_WRITE: Final = AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID
_NOT_AUTHORIZED: Final = ProduceOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)
_INTERNAL: Final = ProduceOutcome(
    errors_pb2.INVALID_TOPIC_EXCEPTION, "coordinators alone write to their topics"
)


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A decoded Produce request.

    ``topics`` contains the name of each topic, and its partitions with their records. The records
    are None if they are null on the wire.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[tuple[int, memoryview | None]]]]


class ProduceResponse(NamedTuple):
    """The outcome of each partition, in the order of the request.

    ``topics`` are the topics of the request, or None if the client expects no response (acks=0).
    """

    topics: list[tuple[str, list[tuple[int, memoryview | None]]]] | None
    outcomes: list[ProduceOutcome]


def decode(version: int, cursor: Cursor) -> Steps[ProduceRequest]:
    """Decode a request, in steps.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
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
            if not len(partitions) % ELEMENTS_IN_A_STEP:
                yield
        topics.append((name, partitions))
        if flexible:
            cursor.skip_tagged_fields()
        if not len(topics) % ELEMENTS_IN_A_STEP:
            yield
    if flexible:
        cursor.skip_tagged_fields()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def throttle_place(version: int) -> int | None:
    """Return the position of the throttle time. It is the last field, before any tagged fields."""
    if version < 1:
        return None
    return -5 if version >= FIRST_FLEXIBLE_VERSION else -4


async def handle(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> ProduceResponse:
    """Append the records at the leader, and wait as ``acks`` requires.

    Raises:
        CloseConnection: the request failed and has acks=0.
    """
    outcomes = await _produce(services, context, request)
    if request.acks == ACKS_NONE:
        _close_if_failed(request, outcomes)
        return ProduceResponse(None, outcomes)
    return ProduceResponse(request.topics, outcomes)


async def _produce(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> list[ProduceOutcome]:
    """Return one outcome per partition, in the order of the request."""
    rights = services.authorizer.rights_of(context)
    refusal = _refusal(request, rights)
    count = sum([len(partitions) for _, partitions in request.topics])
    if refusal is not None:
        return [refusal] * count
    allowed = rights.topics(AclOperation.WRITE, (topic for topic, _ in request.topics))
    writable = allowed - INTERNAL_TOPICS
    owner = request.transactional_id
    origin = AppendOrigin.CLIENT if owner is None else AppendOrigin.TRANSACTIONAL_CLIENT
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
    if transactional_id is None or rights.may(*_TRANSACTIONAL_WRITE, transactional_id):
        return None
    return ProduceOutcome(
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        rights.refusal(*_TRANSACTIONAL_WRITE, transactional_id),
    )


def _close_if_failed(request: ProduceRequest, outcomes: list[ProduceOutcome]) -> None:
    """Close the connection if a request with acks=0 failed.

    Such a request gets no response. The closed connection makes its client refresh its metadata.

    Raises:
        CloseConnection: the request failed.
    """
    failed = next((outcome for outcome in outcomes if outcome.error_code), None)
    if failed is not None:
        topics = ", ".join(topic for topic, _ in request.topics)
        name = error_name(failed.error_code)
        detail = f": {failed.error_message}" if failed.error_message else ""
        raise CloseConnection(f"produce with acks=0 to {topics} failed with {name}{detail}")


def encode(version: int, response: ProduceResponse) -> Steps[Buffers]:
    """Encode a response, in steps. It is empty if the client expects none."""
    topics = response.topics
    if topics is None:
        return []
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = bytearray()
    remaining = iter(response.outcomes)
    append_length(out, len(topics), flexible)
    for topics_done, (topic, partitions) in enumerate(topics, start=1):
        append_string(out, topic, flexible)
        append_length(out, len(partitions), flexible)
        for place, (index, _) in enumerate(partitions, start=1):
            _append_partition(out, version, index, next(remaining))
            if not place % ELEMENTS_IN_A_STEP:
                yield
        if flexible:
            out.append(0)
        if not topics_done % ELEMENTS_IN_A_STEP:
            yield
    if version >= 1:
        out += _INT32.pack(0)
    if flexible:
        out.append(0)
    return [bytes(out)]


class ProduceDivision:
    """Divides a request with many partitions. Its parts append one after the other."""

    at_once = PARTITIONS_AT_ONCE

    def parts(self, body: ProduceRequest) -> Iterator[ProduceRequest]:
        """Yield requests with up to ``at_once`` partitions each, in order."""
        part: list[tuple[str, list[tuple[int, memoryview | None]]]] = []
        room = self.at_once
        for topic, partitions in body.topics:
            for start in range(0, len(partitions), self.at_once):
                piece = partitions[start : start + self.at_once]
                if part and len(piece) > room:
                    yield dataclasses.replace(body, topics=part)
                    part, room = [], self.at_once
                part.append((topic, piece))
                room -= len(piece)
        yield dataclasses.replace(body, topics=part)

    def answer(self, api_name: str, version: int) -> "ProduceAnswer":
        return ProduceAnswer(version)


class ProduceAnswer:
    """The response to a divided request."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._topics: list[tuple[str, list[tuple[int, memoryview | None]]]] | None = []
        self._outcomes: list[ProduceOutcome] = []

    @property
    def size(self) -> int:
        return len(self._outcomes) * _APPENDED.size

    def add(self, response: ProduceResponse) -> bool:
        self._outcomes += response.outcomes
        if response.topics is None or self._topics is None:
            self._topics = None
            return True
        for topic, partitions in response.topics:
            if self._topics and self._topics[-1][0] == topic:
                self._topics[-1][1].extend(partitions)
            else:
                self._topics.append((topic, [*partitions]))
        return True

    def encode(self) -> Steps[Buffers]:
        return encode(self._version, ProduceResponse(self._topics, self._outcomes))


def _append_partition(out: bytearray, version: int, index: int, outcome: ProduceOutcome) -> None:
    if version >= FIRST_FLEXIBLE_VERSION and outcome.error_message is None:
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
        if flexible:
            out.append(0)
