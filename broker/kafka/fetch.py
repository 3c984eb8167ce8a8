"""Fetch (1): a consumer's long poll, within a fetch session or naming all its partitions."""

from typing import Final, TypeAlias

from broker.config.listeners import FETCH_MAX_BYTES
from broker.kafka.fetch_answer import encode
from broker.kafka.fetch_request import FINAL_EPOCH, FetchRequest
from broker.kafka.fetch_session import FIRST_EPOCH, FetchSession, SessionOwner, by_topic
from broker.kafka.rack_mates import RackMates
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.replication.api import FetchOutcome, FetchTerms, isolation_of
from broker.replication.polling import Position
from metadata_log.acls import AclOperation
from metadata_log.types import BrokerId
from quorate_proto.v1 import errors_pb2

Near: TypeAlias = frozenset[BrokerId] | None

_NOT_AUTHORIZED: Final = FetchOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)


def answer_bytes_max(services: KafkaServices, request: FetchRequest) -> int:
    """How much one answer may hold; a single batch may be larger."""
    return max(0, min(request.max_bytes, services.config[FETCH_MAX_BYTES]))


class FetchApi:
    """Of one listener."""

    def __init__(self) -> None:
        self._rack_mates = RackMates()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: FetchRequest
    ) -> Buffers:
        near = self._rack_mates.of(services, context, request.rack)
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
            # Its client does not know of it.
            sessions.close(begun)
            raise


async def _in_session(
    services: KafkaServices,
    context: RequestContext,
    request: FetchRequest,
    near: Near,
    session: FetchSession | None,
) -> Buffers:
    if session is None:
        return _refused(context, request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
    async with session.turn:
        refusal = session.go_on(request)
        if refusal == errors_pb2.INVALID_FETCH_SESSION_EPOCH:
            return _refused(context, request, refusal)
        if refusal != errors_pb2.NONE or not len(session):
            services.fetch_sessions.close(session)
            return _refused(context, request, refusal)
        session.judge(services.authorizer, services.authorizer.rights_of(context))
        found: dict[Position, FetchOutcome] = {}
        if session.may_read_something:
            terms = await _terms(services, context, request, near)
            found = await services.replicas.poll(session.poll, terms)
        if session.poll.is_closed:
            context.lease.keep(0)
            return _refused(context, request, errors_pb2.FETCH_SESSION_ID_NOT_FOUND)
        topics = by_topic(session.answer(found, _NOT_AUTHORIZED))
    return encode(context.version, request.isolation_level, topics, session_id=session.id)


async def _without_session(
    services: KafkaServices, context: RequestContext, request: FetchRequest, near: Near
) -> Buffers:
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (topic for topic, _ in request.topics))
    wants = [want for topic, wants in request.topics if topic in readable for want in wants]
    found: list[FetchOutcome] = []
    if wants:
        terms = await _terms(services, context, request, near)
        found = await services.replicas.fetch(wants, terms)
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
    return encode(context.version, request.isolation_level, topics)


async def _terms(
    services: KafkaServices, context: RequestContext, request: FetchRequest, near: Near
) -> FetchTerms:
    """For what is left of the request's time once there is memory for its answer."""
    max_wait_ms = await services.memory.responses.wait_for_room(max(0, request.max_wait_ms))
    max_bytes = answer_bytes_max(services, request)
    return FetchTerms(
        max_wait_ms=max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        room=context.lease,
        isolation=isolation_of(request.isolation_level),
        near=near,
    )


def _refused(context: RequestContext, request: FetchRequest, error_code: int) -> Buffers:
    return encode(context.version, request.isolation_level, error_code=error_code)
