"""Fetch (1): a consumer's long poll, within a fetch session or with all partitions in the request.

A consumer that names its rack may be sent to a replica in that rack (KIP-392).
"""

from collections import defaultdict
from typing import Final, TypeAlias

from quorate.broker.config.client_keys import RACK_AWARE_SELECTOR, REPLICA_SELECTOR_CLASS
from quorate.broker.config.listeners import FETCH_MAX_BYTES
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.records.fetch_messages import FINAL_EPOCH, FetchRequest, FetchResponse
from quorate.broker.kafka.records.fetch_session import (
    FIRST_EPOCH,
    FetchSession,
    SessionOwner,
    by_topic,
)
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.replication.api import FetchOutcome, FetchParams, isolation_of
from quorate.broker.replication.hosting.delayed_fetch import FetchPosition
from quorate.common.acl_types import AclOperation
from quorate.common.types import BrokerId
from quorate_proto.v1 import errors_pb2

RackBrokerIds: TypeAlias = frozenset[BrokerId] | None

_NOT_AUTHORIZED: Final = FetchOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)


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
            begun = sessions.open(owner, sum(len(wants) for _, wants in request.topics))
        if begun is None:
            return await _without_session(services, context, request, near)
        try:
            return await _in_session(services, context, request, near, begun)
        except BaseException:
            # The client does not know of the session.
            sessions.close(begun)
            raise


async def _in_session(
    services: KafkaServices,
    context: RequestContext,
    request: FetchRequest,
    near: RackBrokerIds,
    session: FetchSession | None,
) -> FetchResponse:
    if session is None:
        return _refused(request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
    async with session.turn:
        error_code = session.update(request)
        if error_code == errors_pb2.INVALID_FETCH_SESSION_EPOCH:
            return _refused(request, error_code)
        if error_code != errors_pb2.NONE or not len(session):
            services.fetch_sessions.close(session)
            return _refused(request, error_code)
        session.check_read_rights(services.authorizer, services.authorizer.rights_of(context))
        found: dict[FetchPosition, FetchOutcome] = {}
        if session.may_read_something:
            params = await _fetch_params(services, context, request, near)
            found = await services.replicas.poll(session.poll, params)
        if session.poll.is_closed:
            context.lease.keep(0)
            return _refused(request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
        topics = by_topic(session.response_outcomes(found, _NOT_AUTHORIZED))
    return FetchResponse(request.isolation_level, topics, session_id=session.id)


async def _without_session(
    services: KafkaServices, context: RequestContext, request: FetchRequest, near: RackBrokerIds
) -> FetchResponse:
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (topic for topic, _ in request.topics))
    wants = [want for topic, wants in request.topics if topic in readable for want in wants]
    found: list[FetchOutcome] = []
    if wants:
        params = await _fetch_params(services, context, request, near)
        found = await services.replicas.fetch(wants, params)
    remaining = iter(found)
    topics = [
        (
            topic,
            [
                (want.tp.partition, next(remaining) if topic in readable else _NOT_AUTHORIZED)
                for want in wants
            ],
        )
        for topic, wants in request.topics
    ]
    return FetchResponse(request.isolation_level, topics)


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
