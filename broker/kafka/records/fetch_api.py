"""Fetch (1): a consumer's long poll, within a fetch session or with all partitions in the request.

A consumer that names its rack may be sent to a replica in that rack (KIP-392). Followers fetch over
gRPC, so a client that says that it is a follower is refused.
"""

from collections import defaultdict
from typing import Final, TypeAlias

import msgspec

from quorate.broker.config.client_keys import RACK_AWARE_SELECTOR, REPLICA_SELECTOR_CLASS
from quorate.broker.config.listeners import FETCH_MAX_BYTES
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.records.current_leaders import WRONG_LEADER, current_leaders
from quorate.broker.kafka.records.fetch_by_id import with_names
from quorate.broker.kafka.records.fetch_messages import (
    FINAL_EPOCH,
    FIRST_VERSION_WITH_LEADERS,
    NO_SESSION,
    FetchRequest,
    FetchResponse,
)
from quorate.broker.kafka.records.fetch_session import (
    FIRST_EPOCH,
    FetchSession,
    SessionOwner,
    by_topic,
)
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.replication.api import FetchOutcome, FetchParams, isolation_of
from quorate.common.acl_types import AclOperation
from quorate.common.types import BrokerId, TopicId
from quorate_proto.v1 import errors_pb2

RackBrokerIds: TypeAlias = frozenset[BrokerId] | None

_NOT_AUTHORIZED: Final = FetchOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)
_NO_REPLICA: Final = FetchOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER)
_UNKNOWN: Final = FetchOutcome(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID: Final = FetchOutcome(errors_pb2.UNKNOWN_TOPIC_ID)
_OF_THIS_REQUEST_ALONE: Final = frozenset(
    {errors_pb2.INVALID_FETCH_SESSION_EPOCH, errors_pb2.FETCH_SESSION_TOPIC_ID_ERROR}
)
"""The errors after which the session goes on with its next request."""


def response_bytes_max(services: KafkaServices, request: FetchRequest) -> int:
    """Return the largest size of a response. Only a single batch may be larger."""
    return max(0, min(request.max_bytes, services.config[FETCH_MAX_BYTES]))


class FetchApi:
    """The handler of Fetch, with its cache of the brokers of each rack."""

    def __init__(self) -> None:
        self._rack_brokers = RackBrokers()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: FetchRequest
    ) -> FetchResponse:
        response = await self._handle(services, context, request)
        if context.version < FIRST_VERSION_WITH_LEADERS:
            return response
        return _with_leaders(services, context, response)

    async def _handle(
        self, services: KafkaServices, context: RequestContext, request: FetchRequest
    ) -> FetchResponse:
        request = with_names(request, services.metadata)
        if request.replica_id >= 0:
            return _refused_follower(services, context, request)
        near = self._rack_brokers.of(services, context, request.rack)
        sessions = services.fetch_sessions
        owner = SessionOwner(context.principal, context.client_host)
        named = sessions.find(request.session_id, owner)
        if request.session_epoch not in (FINAL_EPOCH, FIRST_EPOCH):
            return await _in_session(services, context, request, near, named)
        if named is not None:
            sessions.close(named)
        begun: FetchSession | None = None
        if request.session_epoch == FIRST_EPOCH:
            partitions = await _partitions_to_keep(services, context, request)
            begun = sessions.open(owner, partitions, uses_topic_ids=request.unnamed is not None)
        if begun is None:
            return await _without_session(services, context, request, near)
        return await _in_session(services, context, request, near, begun)


def _with_leaders(
    services: KafkaServices, context: RequestContext, response: FetchResponse
) -> FetchResponse:
    """Add the leaders of the partitions for which the client asked the wrong broker, or in an old
    epoch (KIP-951).
    """
    topics = tuple(response.topics)
    refused = [
        (topic, number)
        for topic, partitions in topics
        for number, outcome in partitions
        if outcome.error_code in WRONG_LEADER
    ]
    if not refused:
        return response._replace(topics=topics)
    leaders = current_leaders(services.metadata, context.listener, refused)
    return response._replace(topics=topics, leaders=leaders)


async def _partitions_to_keep(
    services: KafkaServices, context: RequestContext, request: FetchRequest
) -> int:
    """Return how many partitions a session of this request would have. The result is 0 if one of
    them is unknown or may not be read, because a session never has such a partition.
    """
    if any(not name and topic_id is not None for name, topic_id, _ in request.topics):
        return 0
    topics = {name for name, _, _ in request.topics}
    rights = services.authorizer.rights_of(context)
    readable = await allowed_topics(services, rights, AclOperation.READ, topics, log_denied=False)
    if len(readable) < len(topics):
        return 0
    partitions = {want.tp for _, _, wants in request.topics for want in wants}
    counts = {topic: services.metadata.partition_count(topic) for topic in topics}
    if any(not 0 <= tp.partition < counts[tp.topic] for tp in partitions):
        return 0
    return len(partitions)


async def _in_session(
    services: KafkaServices,
    context: RequestContext,
    request: FetchRequest,
    near: RackBrokerIds,
    session: FetchSession | None,
) -> FetchResponse:
    if session is None:
        return _refused(request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
    sessions = services.fetch_sessions
    async with session.turn:
        error_code = session.update(request)
        if error_code in _OF_THIS_REQUEST_ALONE:
            return _refused(request, error_code)
        if error_code != errors_pb2.NONE or not len(session):
            sessions.close(session)
            return _refused(request, error_code)
        rights = services.authorizer.rights_of(context)
        may_go_on = session.may_all_be_read(services.authorizer, rights)
        if not sessions.has_room_for(session) or not may_go_on:
            sessions.close(session)
            whole = msgspec.structs.replace(request, topics=session.wants())
            return await _without_session(services, context, whole, near)
        try:
            params = await _fetch_params(services, context, request, near)
            found = await services.replicas.poll(session.poll, params)
        except BaseException:
            # The client does not know of the session, or it does not know how far the session is.
            sessions.close(session)
            raise
        if session.poll.is_closed:
            context.lease.keep(0)
            return _refused(request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
        outcomes, all_are_here = session.response_outcomes(found)
        session_id = session.id
        if not all_are_here:
            sessions.close(session)
            session_id = NO_SESSION
    return FetchResponse(request.isolation_level, by_topic(outcomes), session_id=session_id)


async def _without_session(
    services: KafkaServices, context: RequestContext, request: FetchRequest, near: RackBrokerIds
) -> FetchResponse:
    rights = services.authorizer.rights_of(context)
    names = [name for name, topic_id, _ in request.topics if name or topic_id is None]
    readable = await allowed_topics(services, rights, AclOperation.READ, names)
    wants = [want for name, _, wants in request.topics if name in readable for want in wants]
    found: list[FetchOutcome] = []
    if wants:
        params = await _fetch_params(services, context, request, near)
        found = await services.replicas.fetch(wants, params)
    remaining = iter(found)
    topics = [
        (
            topic_id or name,
            [
                (
                    want.tp.partition,
                    next(remaining) if name in readable else _refusal_of_topic(name, topic_id),
                )
                for want in wants
            ],
        )
        for name, topic_id, wants in request.topics
    ]
    return FetchResponse(request.isolation_level, topics)


def _refusal_of_topic(name: str, topic_id: TopicId | None) -> FetchOutcome:
    """Return the outcome of a topic that may not be read, or that is not known by its id."""
    return _NOT_AUTHORIZED if name or topic_id is None else _UNKNOWN_ID


async def _fetch_params(
    services: KafkaServices, context: RequestContext, request: FetchRequest, near: RackBrokerIds
) -> FetchParams:
    """Wait for memory for the response, and return the parameters of the fetch for the rest of
    the request's time.
    """
    max_wait_ms = await services.memory.responses.wait_for_room(max(0, request.max_wait_ms))
    max_bytes = min(response_bytes_max(services, request), context.fetch_bytes_max)
    return FetchParams(
        max_wait_ms=max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        room=context.lease,
        isolation=isolation_of(request.isolation_level),
        near=near,
    )


def _refused(request: FetchRequest, error_code: int) -> FetchResponse:
    return FetchResponse(request.isolation_level, error_code=error_code)


def _refused_follower(
    services: KafkaServices, context: RequestContext, request: FetchRequest
) -> FetchResponse:
    """Refuse each partition as Kafka does: to a client that is no broker for its lack of rights,
    and to a broker because it has no replica of the partition.
    """
    if request.session_epoch not in (FINAL_EPOCH, FIRST_EPOCH):
        return _refused(request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
    is_broker = services.authorizer.rights_of(context).may_cluster(AclOperation.CLUSTER_ACTION)
    topics = []
    for name, topic_id, wants in request.topics:
        count = services.metadata.partition_count(name) if is_broker else 0
        unknown = _NOT_AUTHORIZED
        if is_broker:
            unknown = _UNKNOWN if name or topic_id is None else _UNKNOWN_ID
        numbers = [want.tp.partition for want in wants]
        outcomes = [(n, _NO_REPLICA if 0 <= n < count else unknown) for n in numbers]
        topics.append((topic_id or name, outcomes))
    return FetchResponse(request.isolation_level, topics)


_NO_BROKERS: frozenset[BrokerId] = frozenset()


class RackBrokers:
    """The brokers in the rack of a consumer. They are computed once for each set of live
    brokers.
    """

    def __init__(self) -> None:
        self._brokers: object = None
        self._brokers_of: dict[tuple[str, str], frozenset[BrokerId]] = {}

    def of(
        self, services: KafkaServices, context: RequestContext, rack: str
    ) -> frozenset[BrokerId] | None:
        """Return the brokers in the rack, in the form of ``FetchParams``, or None if the client
        did not name its rack.
        """
        if not rack:
            return None
        if services.config[REPLICA_SELECTOR_CLASS] != RACK_AWARE_SELECTOR:
            return _NO_BROKERS
        brokers = services.metadata.brokers
        if brokers is not self._brokers:
            brokers_of: defaultdict[tuple[str, str], set[BrokerId]] = defaultdict(set)
            for broker_id, broker in brokers.items():
                for listener in broker.listeners:
                    brokers_of[broker.rack, listener].add(broker_id)
            self._brokers_of = {place: frozenset(some) for place, some in brokers_of.items()}
            self._brokers = brokers
        return self._brokers_of.get((rack, context.listener), _NO_BROKERS)
