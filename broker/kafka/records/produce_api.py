"""Produce (0): append record batches, and return one outcome for each partition.

Versions 0 to 2 are decoded because librdkafka checks for them before it compresses. The record
formats of these versions are refused batch by batch. Records are never copied here.

From version 13 on, a request has the ids of its topics. What a producer sends to a topic never gets
into another one that was created under the same name (KIP-516).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from quorate.broker.common.errors import error_name
from quorate.broker.common.steps import Steps
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.records.current_leaders import (
    NO_LEADERS,
    CurrentLeaders,
    current_leaders,
)
from quorate.broker.kafka.records.produce_messages import (
    FIRST_VERSION_WITH_LEADERS,
    ProducedTopics,
    ProduceRequest,
    ProduceResponse,
    encode,
)
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.primitives import Buffers, at_once
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ProduceEntry,
    ProduceOutcome,
    TransactionSupport,
)
from quorate.broker.replication.hosting.delayed_produce import DelayedProduce
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

PARTITIONS_AT_ONCE: Final = 64
"""The number of partitions up to which a request is appended without a break."""

_NOT_LEADER: Final = errors_pb2.NOT_LEADER_OR_FOLLOWER
_BYTES_OF_AN_OUTCOME: Final = 33
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_THAT_ADDS: Final = 12
_ANNOUNCED: Final = TransactionSupport.ANNOUNCED
_TRANSACTIONAL_WRITE: Final = AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID
_NOT_AUTHORIZED: Final = ProduceOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)
_UNKNOWN_ID: Final = ProduceOutcome(errors_pb2.UNKNOWN_TOPIC_ID)
_INTERNAL: Final = ProduceOutcome(
    errors_pb2.INVALID_TOPIC_EXCEPTION, "coordinators alone write to their topics"
)


async def handle(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> ProduceResponse:
    """Append the records at the leader, and wait as ``acks`` requires.

    Raises:
        CloseConnection: the request failed and has acks=0.
    """
    admitted = _admitted(services, context, request)
    appended: list[ProduceOutcome] = []
    if admitted.entries:
        appended = await services.replicas.produce(
            admitted.entries, request.acks, request.timeout_ms
        )
    outcomes = _all_outcomes(request, admitted, appended)
    if request.acks == ACKS_NONE:
        _close_if_failed(admitted.names, outcomes)
        return ProduceResponse(None, outcomes)
    return ProduceResponse(request.topics, outcomes, _leaders(services, context, request, outcomes))


def _leaders(
    services: KafkaServices,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: list[ProduceOutcome],
) -> CurrentLeaders:
    """Return the leaders of the partitions that this broker does not lead (KIP-951)."""
    codes = {outcome.error_code for outcome in outcomes}
    if context.version < FIRST_VERSION_WITH_LEADERS or _NOT_LEADER not in codes:
        return NO_LEADERS
    named = ((topic, index) for topic, partitions in request.topics for index, _ in partitions)
    refused = (
        each
        for each, outcome in zip(named, outcomes, strict=True)
        if outcome.error_code == _NOT_LEADER
    )
    return current_leaders(services.metadata, context.listener, refused)


def begin(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> "ProduceInProgress | None":
    """Append the records of a request, like ``handle``, without a coroutine that waits for others.

    Return None if that does not do: with acks=0, where the disk may have to catch up first.
    """
    if request.acks == ACKS_NONE:
        return None
    return ProduceInProgress(services, context, request)


class ProduceInProgress:
    """A request whose records are appended. It is ``Work``: its result is the encoded response."""

    __slots__ = ("_admitted", "_begun_s", "_context", "_error", "_pending", "_request", "_services")

    def __init__(
        self, services: KafkaServices, context: RequestContext, request: ProduceRequest
    ) -> None:
        self._begun_s = time.perf_counter()
        self._services = services
        self._context = context
        self._request = request
        self._error: Exception | None = None
        self._pending: DelayedProduce | None = None
        try:
            self._admitted = admitted = _admitted(services, context, request)
            if admitted.entries:
                self._pending = services.replicas.begin_produce(
                    admitted.entries, request.acks, request.timeout_ms
                )
        except Exception as error:  # noqa: BLE001 - told by ``result``
            self._error = error.with_traceback(None)

    def done(self) -> bool:
        return self._pending is None or self._pending.done

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """Do nothing: what was appended stays, and so does the order of what comes behind it."""
        return False

    def exception(self) -> BaseException | None:
        return self._error

    def add_done_callback(self, on_done: Callable[[Any], object]) -> None:
        """Call ``on_done`` with this when all outcomes are known, which they are not yet."""
        assert self._pending is not None
        self._pending.when_done(partial(on_done, self))

    def result(self) -> Buffers:
        """Return the response, once.

        Raises:
            Exception: nothing was appended, because of a fault of ours.
        """
        if self._error is not None:
            raise self._error
        appended = [] if self._pending is None else self._pending.outcomes
        outcomes = _all_outcomes(self._request, self._admitted, appended)
        request, context = self._request, self._context
        leaders = _leaders(self._services, context, request, outcomes)
        encoded = at_once(
            encode(context.version, ProduceResponse(request.topics, outcomes, leaders))
        )
        spent_s = time.perf_counter() - self._begun_s
        self._services.figures.request_times["produce"].observe(spent_s)
        return encoded


class Admitted(NamedTuple):
    """The partitions of a request that may be appended.

    ``names`` are those of the request's topics, in order, with None for an id that no topic has.
    ``refused`` has the outcome of each topic whose partitions are not among the ``entries``.
    """

    names: list[str | None]
    entries: list[ProduceEntry]
    refused: Mapping[str | None, ProduceOutcome]


_NONE_REFUSED: Final[Mapping[str | None, ProduceOutcome]] = {}


def _admitted(
    services: KafkaServices, context: RequestContext, request: ProduceRequest
) -> Admitted:
    names = _names(services.metadata, request)
    allowed = frozenset(name for name in names if name is not None)
    refusal = _refusal_of_acks(request)
    if services.authorizer.enabled:
        rights = services.authorizer.rights_of(context)
        refusal = refusal or _refusal_of_id(request, rights)
        if refusal is None:
            allowed = rights.topics(AclOperation.WRITE, allowed)
    if refusal is not None:
        return Admitted(names, [], dict.fromkeys(names, refusal))
    refused = _NONE_REFUSED
    if not INTERNAL_TOPICS.isdisjoint(names) or not allowed.issuperset(names):
        refused = {
            name: _refusal_of_topic(name, allowed)
            for name in names
            if name in INTERNAL_TOPICS or name not in allowed
        }
    owner = request.transactional_id
    origin = AppendOrigin.CLIENT if owner is None else AppendOrigin.TRANSACTIONAL_CLIENT
    support = _ANNOUNCED if owner is None else _support(context.version)
    entries: list[ProduceEntry] = []
    for name, (topic, partitions) in zip(names, request.topics, strict=True):
        if name is not None and name not in refused:
            topic_id = None if isinstance(topic, str) else topic
            entries += [
                ProduceEntry(
                    TopicPartition(name, index),
                    b"" if records is None else records,
                    origin,
                    owner,
                    topic_id,
                    support,
                )
                for index, records in partitions
            ]
    return Admitted(names, entries, refused)


def _names(metadata: MetadataCache, request: ProduceRequest) -> list[str | None]:
    return [
        topic if isinstance(topic, str) else metadata.topic_name(topic)
        for topic, _ in request.topics
    ]


def _refusal_of_topic(name: str | None, allowed: Set[str]) -> ProduceOutcome:
    if name is None:
        return _UNKNOWN_ID
    return _INTERNAL if name in allowed else _NOT_AUTHORIZED


def _support(version: int) -> TransactionSupport:
    """Return what a version of Produce says of its producer's transactions (KIP-890)."""
    if version >= _FIRST_THAT_ADDS:
        return TransactionSupport.ADDED
    return TransactionSupport.ABORTABLE if version >= _FIRST_WITH_ABORTABLE else _ANNOUNCED


def _all_outcomes(
    request: ProduceRequest, admitted: Admitted, outcomes: list[ProduceOutcome]
) -> list[ProduceOutcome]:
    """Return one outcome per partition, in the order of the request, with those of the entries."""
    refused = admitted.refused
    if not refused:
        return outcomes
    remaining = iter(outcomes)
    return [
        refused[name] if name in refused else next(remaining)
        for name, (_, partitions) in zip(admitted.names, request.topics, strict=True)
        for _ in partitions
    ]


def _refusal_of_acks(request: ProduceRequest) -> ProduceOutcome | None:
    if request.acks in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
        return None
    return ProduceOutcome(
        errors_pb2.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1"
    )


def _refusal_of_id(request: ProduceRequest, rights: Rights) -> ProduceOutcome | None:
    transactional_id = request.transactional_id
    if transactional_id is None or rights.may(*_TRANSACTIONAL_WRITE, transactional_id):
        return None
    return ProduceOutcome(
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        rights.refusal(*_TRANSACTIONAL_WRITE, transactional_id),
    )


def _close_if_failed(names: Iterable[str | None], outcomes: list[ProduceOutcome]) -> None:
    """Close the connection if a request with acks=0 failed.

    Such a request gets no response. The closed connection makes its client refresh its metadata.

    Raises:
        CloseConnection: the request failed.
    """
    failed = next((outcome for outcome in outcomes if outcome.error_code), None)
    if failed is not None:
        topics = ", ".join("a topic of an unknown id" if name is None else name for name in names)
        name = error_name(failed.error_code)
        detail = f": {failed.error_message}" if failed.error_message else ""
        raise CloseConnection(f"produce with acks=0 to {topics} failed with {name}{detail}")


class ProduceDivision:
    """Divides a request with many partitions. Its parts append one after the other."""

    at_once = PARTITIONS_AT_ONCE

    def parts(self, body: ProduceRequest) -> Iterator[ProduceRequest]:
        """Yield requests with up to ``at_once`` partitions each, in order."""
        part: ProducedTopics = []
        room = self.at_once
        for topic, partitions in body.topics:
            for start in range(0, len(partitions), self.at_once):
                piece = partitions[start : start + self.at_once]
                if part and len(piece) > room:
                    yield msgspec.structs.replace(body, topics=part)
                    part, room = [], self.at_once
                part.append((topic, piece))
                room -= len(piece)
        yield msgspec.structs.replace(body, topics=part)

    def answer(self, api_name: str, version: int) -> "ProduceAnswer":
        return ProduceAnswer(version)


class ProduceAnswer:
    """The response to a divided request."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._topics: ProducedTopics | None = []
        self._outcomes: list[ProduceOutcome] = []
        self._leaders = NO_LEADERS

    @property
    def size(self) -> int:
        return len(self._outcomes) * _BYTES_OF_AN_OUTCOME

    def add(self, response: ProduceResponse) -> bool:
        self._outcomes += response.outcomes
        self._leaders = self._leaders.and_those(response.leaders)
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
        answer = ProduceResponse(self._topics, self._outcomes, self._leaders)
        return encode(self._version, answer)
