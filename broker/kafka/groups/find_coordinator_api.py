"""FindCoordinator (10): find the broker that coordinates a consumer group, or a producer's
transactions.

It is the leader of the partition to which the group or the transactional id belongs, in the
internal topic of the coordinators.
"""

from typing import Final

from quorate.broker.config.internal_topics import partition_of
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.coordinator_topics import (
    COORDINATOR_KINDS,
    GROUPS,
    CoordinatorKind,
    CoordinatorTopics,
)
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.metadata.metadata_cache import endpoints_at
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import NO_BROKER, BrokerId
from quorate_proto.v1 import errors_pb2

_FIRST_BATCHED_VERSION: Final = 4


class FindCoordinatorApi:
    """The handler of FindCoordinator, with the internal topics that are being created (F4)."""

    def __init__(self) -> None:
        self._topics = CoordinatorTopics()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Message:
        key_type = request.get("key_type", GROUPS)
        batched = context.version >= _FIRST_BATCHED_VERSION
        keys = request["coordinator_keys"] if batched else [request["key"]]
        rights = services.authorizer.rights_of(context)
        missing: str | None = None
        async for key in services.turns.through(keys):
            if not _may_find(rights, key_type, key):
                continue
            missing = await self._topics.create_if_missing(services, context, key_type)
            break
        await AnswerPrice(services, context).add(len(keys))
        coordinators = [
            _coordinator(services, rights, context.listener, key_type, key, missing)
            async for key in services.turns.through(keys)
        ]
        values: Message = {"throttle_time": 0}
        if batched:
            values["coordinators"] = [
                {"key": key, **coordinator}
                for key, coordinator in zip(keys, coordinators, strict=True)
            ]
        else:
            values.update(coordinators[0])
        return values


def _may_find(rights: Rights, key_type: int, key: str) -> bool:
    """Return whether the client has a right on the key. Only a request with such a key may
    create the internal topic.
    """
    kind = COORDINATOR_KINDS.get(key_type)
    return kind is not None and _is_allowed(rights, kind, key)


def _is_allowed(rights: Rights, kind: CoordinatorKind, key: str) -> bool:
    """Return whether the client may find a coordinator. That of share-partitions is for brokers."""
    if kind.resource_type is ResourceType.CLUSTER:
        return rights.may_cluster(AclOperation.CLUSTER_ACTION)
    return rights.may(AclOperation.DESCRIBE, kind.resource_type, key)


def _coordinator(
    services: KafkaServices,
    rights: Rights,
    listener: str,
    key_type: int,
    key: str,
    missing: str | None,
) -> Message:
    """Describe the coordinator of one key. ``missing`` is the reason why there is no internal
    topic, or None if there is one.
    """
    kind = COORDINATOR_KINDS.get(key_type)
    if kind is None:
        message = (
            f"key type {key_type} of {key!r}: 0 (group), 1 (transaction) and 2 (share) are served"
        )
        return _no_coordinator(errors_pb2.INVALID_REQUEST, message)
    if not _is_allowed(rights, kind, key):
        return _no_coordinator(
            kind.denied, rights.refusal(AclOperation.DESCRIBE, kind.resource_type, key)
        )
    if missing is not None:
        return _no_coordinator(errors_pb2.COORDINATOR_NOT_AVAILABLE, missing)
    leader = _leader(services, kind.topic, key)
    known = endpoints_at(services.metadata.brokers, listener)
    if leader not in known:
        message = f"{kind.what} {key!r}: its partition of {kind.topic} has no leader now; try again"
        return _no_coordinator(errors_pb2.COORDINATOR_NOT_AVAILABLE, message)
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "node_id": leader,
        "host": known[leader].host,
        "port": known[leader].port,
    }


def _leader(services: KafkaServices, topic_name: str, key: str) -> BrokerId:
    """Return the leader, or -1 if there is none, or if this broker does not know the topic yet."""
    topic = services.metadata.topics.get(topic_name)
    if topic is None:
        return NO_BROKER
    return topic.partitions[partition_of(key, len(topic.partitions))].leader


def _no_coordinator(error_code: int, message: str) -> Message:
    return {
        "error_code": error_code,
        "error_message": message,
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }
