"""FindCoordinator (10): who coordinates a consumer group, or a producer's transactions.

The leader of the partition of the coordinators' topic that the group, or the transactional id,
belongs to by its name.
"""

from typing import Final

from broker.coordinator.topics import partition_of
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.internal_topics import GROUPS, KINDS, InternalTopics
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.authorizer import Rights
from broker.told_metadata import endpoints_at
from metadata_log.acls import AclOperation
from metadata_log.types import NO_BROKER, BrokerId
from quorate_proto.v1 import errors_pb2

_FIRST_BATCHED_VERSION: Final = 4


class FindCoordinatorApi:
    """The handler, with the topics of coordinators that are being created (F4)."""

    def __init__(self) -> None:
        self._topics = InternalTopics()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Buffers:
        key_type = request.get("key_type", GROUPS)
        batched = context.version >= _FIRST_BATCHED_VERSION
        keys = request["coordinator_keys"] if batched else [request["key"]]
        rights = services.authorizer.rights_of(context)
        missing: str | None = None
        if any(_may_look(rights, key_type, key) for key in keys):
            missing = await self._topics.why_missing(services, context, key_type)
        answers = [
            _coordinator(services, rights, context.listener, key_type, key, missing) for key in keys
        ]
        values: Message = {"throttle_time": 0}
        if batched:
            values["coordinators"] = [
                {"key": key, **answer} for key, answer in zip(keys, answers, strict=True)
            ]
        else:
            values.update(answers[0])
        return [codec.encode_response("find_coordinator", context.version, values)]


def _may_look(rights: Rights, key_type: int, key: str) -> bool:
    """Whether this client may have a topic created by asking; strangers may not."""
    kind = KINDS.get(key_type)
    return kind is not None and rights.may(AclOperation.DESCRIBE, kind.resource_type, key)


def _coordinator(
    services: KafkaServices,
    rights: Rights,
    listener: str,
    key_type: int,
    key: str,
    missing: str | None,
) -> Message:
    """``missing``: why there is no topic of the coordinators."""
    kind = KINDS.get(key_type)
    if kind is None:
        message = f"key type {key_type} of {key!r}: 0 (group) and 1 (transaction) are served"
        return _nobody(errors_pb2.INVALID_REQUEST, message)
    if not rights.may(AclOperation.DESCRIBE, kind.resource_type, key):
        return _nobody(kind.denied, rights.refusal(AclOperation.DESCRIBE, kind.resource_type, key))
    if missing is not None:
        return _nobody(errors_pb2.COORDINATOR_NOT_AVAILABLE, missing)
    leader = _leader(services, kind.topic, key)
    known = endpoints_at(services.metadata.brokers, listener)
    if leader not in known:
        message = f"{kind.what} {key!r}: its partition of {kind.topic} has no leader now; try again"
        return _nobody(errors_pb2.COORDINATOR_NOT_AVAILABLE, message)
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "node_id": leader,
        "host": known[leader].host,
        "port": known[leader].port,
    }


def _leader(services: KafkaServices, topic_name: str, key: str) -> BrokerId:
    """-1: there is none, or nobody has told of the topic yet."""
    topic = services.metadata.topics.get(topic_name)
    if topic is None:
        return NO_BROKER
    return topic.partitions[partition_of(key, len(topic.partitions))].leader


def _nobody(error_code: int, message: str) -> Message:
    return {
        "error_code": error_code,
        "error_message": message,
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }
