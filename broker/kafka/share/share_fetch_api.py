"""ShareFetch (78) and ShareAcknowledge (79): members of share groups get records, and say what
became of them (KIP-932)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.config.group_keys import SHARE_RECORD_LOCK_DURATION
from quorate.broker.config.listeners import FETCH_MAX_BYTES
from quorate.broker.coordinator.share.share_leader import ShareFetchParams, ShareOutcome
from quorate.broker.coordinator.share.state.acknowledgements import (
    AcknowledgementBatch,
    check_batches,
)
from quorate.broker.coordinator.share.state.acquiring import Wanted
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share.share_messages import (
    FIRST_VERSION_WITH_MODE,
    RECORD_LIMIT,
    NodeAddress,
    PartitionAnswer,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePlace,
    by_topic,
)
from quorate.broker.kafka.share.share_sessions import FINAL_EPOCH, FIRST_EPOCH, ShareSession
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.metadata.metadata_cache import endpoints_at
from quorate.common.acl_types import AclOperation
from quorate.common.types import BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2

_LED_ELSEWHERE: Final = frozenset(
    {errors_pb2.NOT_LEADER_OR_FOLLOWER, errors_pb2.FENCED_LEADER_EPOCH}
)

Acknowledged = dict[SharePlace, tuple[int, str | None]]
"""The error code and the message of each partition of which something was acknowledged."""


def response_bytes_max(services: KafkaServices, request: ShareFetchRequest) -> int:
    """Return the largest size of a response. Only a single batch may be larger."""
    return max(0, min(request.max_bytes, services.config[FETCH_MAX_BYTES]))


async def share_fetch(
    services: KafkaServices, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Take acknowledgements, and hand out records."""
    try:
        _check(services, context, request.group_id, request.member_id)
        _check_renewal(request)
        session = await _session(services, context, request)
    except KafkaError as error:
        context.lease.keep(0)
        return ShareFetchResponse(error.code, error.message)
    named = _named(services, [*session.places, *request.partitions])
    readable = await _readable(services, context, named)
    acknowledging = {place: acks for place, acks in request.partitions.items() if acks}
    acknowledged, fetched = await asyncio.gather(
        _acknowledge(services, context, request, acknowledging, named, readable),
        _fetch(services, context, request, session, named, readable),
    )
    if request.session_epoch == FINAL_EPOCH:
        services.share_sessions.close(session)
    answers = {
        place: PartitionAnswer(
            fetched.get(place, ShareOutcome()), *acknowledged.get(place, (errors_pb2.NONE, None))
        )
        for place in (*fetched, *(one for one in acknowledged if one not in fetched))
    }
    elsewhere = [
        place
        for place, answer in answers.items()
        if not {answer.fetched.error_code, answer.acknowledge_code}.isdisjoint(_LED_ELSEWHERE)
    ]
    leaders, nodes = _leaders(services, context, elsewhere, named)
    return ShareFetchResponse(
        lock_duration_ms=_lock_duration_ms(services, request.group_id),
        partitions=answers,
        leaders=leaders,
        nodes=nodes,
    )


async def share_acknowledge(
    services: KafkaServices, context: RequestContext, request: ShareAcknowledgeRequest
) -> Message:
    """ShareAcknowledge (79). The response is sent when what it says is written."""
    try:
        _check(services, context, request.group_id, request.member_id)
        epoch = request.session_epoch
        if epoch == FIRST_EPOCH:
            raise KafkaError(
                errors_pb2.INVALID_SHARE_SESSION_EPOCH, "a share session begins with ShareFetch"
            )
        session = services.share_sessions.get(request.group_id, request.member_id, epoch)
    except KafkaError as error:
        return {
            "throttle_time": 0,
            "error_code": error.code,
            "error_message": error.message,
            "acquisition_lock_timeout": 0,
            "responses": [],
            "node_endpoints": [],
        }
    if epoch != FINAL_EPOCH:
        session.advance()
    named = _named(services, request.partitions)
    readable = await _readable(services, context, named)
    acknowledged = await _acknowledge(
        services, context, request, request.partitions, named, readable
    )
    if epoch == FINAL_EPOCH:
        services.share_sessions.close(session)
    elsewhere = [place for place, (code, _) in acknowledged.items() if code in _LED_ELSEWHERE]
    leaders, nodes = _leaders(services, context, elsewhere, named)
    return {
        "throttle_time": 0,
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "acquisition_lock_timeout": _lock_duration_ms(services, request.group_id),
        "responses": [
            {
                "topic_id": UUID(bytes=topic_id),
                "partitions": [
                    _acknowledged(place, code, message, leaders)
                    for place, (code, message) in outcomes
                ],
            }
            for topic_id, outcomes in by_topic(acknowledged.items()).items()
        ],
        "node_endpoints": [
            {
                "node_id": node.node_id,
                "host": node.endpoint.host,
                "port": node.endpoint.port,
                "rack": node.rack or None,
            }
            for node in nodes
        ],
    }


def _acknowledged(
    place: SharePlace,
    code: int,
    message: str | None,
    leaders: Mapping[SharePlace, tuple[int, int]],
) -> Message:
    leader_id, leader_epoch = leaders.get(place, (0, 0))
    return {
        "partition_index": place[1],
        "error_code": code,
        "error_message": message,
        "current_leader": {"leader_id": leader_id, "leader_epoch": leader_epoch},
    }


# -- checks and sessions ---------------------------------------------------------------------------


def _check(services: KafkaServices, context: RequestContext, group_id: str, member_id: str) -> None:
    if not group_id:
        raise KafkaError(errors_pb2.INVALID_REQUEST, "the group id is empty")
    require_group(services, context, AclOperation.READ, group_id)
    if not member_id:
        raise KafkaError(errors_pb2.INVALID_REQUEST, "the member id is empty")


def _check_renewal(request: ShareFetchRequest) -> None:
    """A request that renews locks fetches nothing, so that its answer comes in time (KIP-1222)."""
    asks = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.renews and asks:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            "max_wait_ms, min_bytes, max_bytes and max_records must be 0 in a request that renews "
            "locks",
        )


async def _session(
    services: KafkaServices, context: RequestContext, request: ShareFetchRequest
) -> ShareSession:
    sessions = services.share_sessions
    group_id, member_id, epoch = request.group_id, request.member_id, request.session_epoch
    if epoch != FIRST_EPOCH:
        session = sessions.get(group_id, member_id, epoch)
        if epoch != FINAL_EPOCH:
            session.update(request.partitions, request.forgotten)
            session.advance()
        return session
    if request.acknowledges:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST, "a request that begins a session acknowledges nothing"
        )
    try:
        session = sessions.open(group_id, member_id, context.connection)
    except KafkaError:
        # The client would ask again at once.
        await asyncio.sleep(max(0, request.max_wait_ms) / 1000)
        raise
    session.update(request.partitions, ())
    return session


def _named(
    services: KafkaServices, places: Iterable[SharePlace]
) -> Mapping[SharePlace, TopicPartition]:
    """Return the partitions whose topics are known, by name."""
    topic_name = services.metadata.topic_name
    return {
        place: TopicPartition(name, place[1])
        for place in places
        if (name := topic_name(place[0])) is not None
    }


async def _readable(
    services: KafkaServices, context: RequestContext, named: Mapping[SharePlace, TopicPartition]
) -> frozenset[str]:
    rights = services.authorizer.rights_of(context)
    names = {tp.topic for tp in named.values()}
    return await allowed_topics(services, rights, AclOperation.READ, names)


def _refusal(
    place: SharePlace,
    named: Mapping[SharePlace, TopicPartition],
    readable: frozenset[str],
    services: KafkaServices,
) -> int:
    """Return why nothing can be done with a partition, or NONE."""
    tp = named.get(place)
    if tp is None:
        return errors_pb2.UNKNOWN_TOPIC_ID
    if tp.topic not in readable:
        return errors_pb2.TOPIC_AUTHORIZATION_FAILED
    if not 0 <= tp.partition < services.metadata.partition_count(tp.topic):
        return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    return errors_pb2.NONE


# -- acknowledging and fetching --------------------------------------------------------------------


async def _acknowledge(
    services: KafkaServices,
    context: RequestContext,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    partitions: Mapping[SharePlace, Sequence[AcknowledgementBatch]],
    named: Mapping[SharePlace, TopicPartition],
    readable: frozenset[str],
) -> Acknowledged:
    renews = context.version >= FIRST_VERSION_WITH_MODE and request.renews

    async def one(
        place: SharePlace, batches: Sequence[AcknowledgementBatch]
    ) -> tuple[int, str | None]:
        code = _refusal(place, named, readable, services)
        if code:
            return code, None
        try:
            check_batches(batches, renews=renews)
            if batches:
                key = SharePartitionKey(request.group_id, *place)
                await services.share_leader.acknowledge(
                    key, named[place], request.member_id, batches
                )
        except KafkaError as error:
            return error.code, error.message
        return errors_pb2.NONE, None

    outcomes = await asyncio.gather(*(one(*item) for item in partitions.items()))
    return dict(zip(partitions, outcomes, strict=True))


async def _fetch(
    services: KafkaServices,
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    named: Mapping[SharePlace, TopicPartition],
    readable: frozenset[str],
) -> dict[SharePlace, ShareOutcome]:
    if request.session_epoch == FINAL_EPOCH or request.renews:
        context.lease.keep(0)
        return {}
    outcomes: dict[SharePlace, ShareOutcome] = {}
    wants: dict[SharePartitionKey, TopicPartition] = {}
    for place in session.rotated():
        code = _refusal(place, named, readable, services)
        if code:
            outcomes[place] = ShareOutcome(code, error_name(code))
        else:
            wants[SharePartitionKey(request.group_id, *place)] = named[place]
    max_wait_ms = await services.memory.responses.wait_for_room(max(0, request.max_wait_ms))
    max_bytes = min(response_bytes_max(services, request), context.fetch_bytes_max)
    params = ShareFetchParams(
        0 if outcomes else max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        context.lease,
    )
    wanted = Wanted(
        request.member_id,
        request.max_records,
        max(1, request.batch_size),
        request.acquire_mode == RECORD_LIMIT,
    )
    found = await services.share_leader.fetch(wants, wanted, params)
    size = sum(outcome.size for outcome in found.values())
    context.lease.keep(size)
    outcomes.update(((key.topic_id, key.partition), one) for key, one in found.items())
    return outcomes


# -- responses -------------------------------------------------------------------------------------


def _lock_duration_ms(services: KafkaServices, group_id: str) -> int:
    return services.group_config.group_value(group_id, SHARE_RECORD_LOCK_DURATION.key)


def _leaders(
    services: KafkaServices,
    context: RequestContext,
    places: Iterable[SharePlace],
    named: Mapping[SharePlace, TopicPartition],
) -> tuple[dict[SharePlace, tuple[int, int]], list[NodeAddress]]:
    """Return the leaders of partitions that are led elsewhere, and their addresses (KIP-951)."""
    leaders: dict[SharePlace, tuple[int, int]] = {}
    for place in places:
        partition = services.metadata.partition(named[place]) if place in named else None
        if partition is not None:
            leaders[place] = (partition.leader, partition.leader_epoch)
    brokers = services.metadata.brokers
    known = endpoints_at(brokers, context.listener)
    nodes = [
        NodeAddress(leader, known[BrokerId(leader)], brokers[BrokerId(leader)].rack)
        for leader in sorted({leader for leader, _ in leaders.values()})
        if leader in known
    ]
    return leaders, nodes
