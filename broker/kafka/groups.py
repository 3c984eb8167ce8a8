"""FindCoordinator (10) and OffsetFetch (9), for consumers that assign their own partitions.

There are no consumer groups yet. Still, most consumers carry a group id, and those of kafka-python,
aiokafka and librdkafka first look for its coordinator and for committed offsets, and wait for ever
if there is none to be found. So each broker is every group's coordinator, which is true of what it
coordinates: no offset was ever committed. OffsetCommit and joining are not advertised, and clients
that want them say so.
"""

from typing import Final

from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.internal_topics import InternalTopics
from broker.kafka.producers import no_transactions
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.authorizer import Rights
from broker.told_metadata import endpoints_at
from metadata_log.acls import AclOperation, ResourceType
from metadata_log.types import NO_BROKER
from quorate_proto.v1 import errors_pb2

_FIRST_BATCHED_VERSION: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_NO_OFFSET: Final = -1


class FindCoordinatorApi:
    """The handler, with the topics of coordinators that are being created (F4)."""

    def __init__(self) -> None:
        self._topics = InternalTopics()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Buffers:
        key_type = request.get("key_type", _GROUP)
        batched = context.version >= _FIRST_BATCHED_VERSION
        keys = request["coordinator_keys"] if batched else [request["key"]]
        rights = services.authorizer.rights_of(context)
        answers = [_coordinator(services, rights, context.listener, key_type, key) for key in keys]
        if any(_may_look(rights, key_type, key) for key in keys):
            missing = await self._topics.why_missing(services, context, key_type)
            if missing is not None:
                nobody = _nobody(errors_pb2.COORDINATOR_NOT_AVAILABLE, missing)
                answers = [
                    nobody if answer["error_code"] == errors_pb2.NONE else answer
                    for answer in answers
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
    if key_type == _TRANSACTION:
        return rights.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    return key_type == _GROUP and rights.may_group(AclOperation.DESCRIBE, key)


def _coordinator(
    services: KafkaServices, rights: Rights, listener: str, key_type: int, key: str
) -> Message:
    if key_type not in (_GROUP, _TRANSACTION):
        message = f"key type {key_type} of {key!r}: 0 (group) and 1 (transaction) are served"
        return _nobody(errors_pb2.INVALID_REQUEST, message)
    if key_type == _TRANSACTION:
        refusal = no_transactions(key)
        return _nobody(refusal.code, refusal.message)
    if not rights.may_group(AclOperation.DESCRIBE, key):
        reason = rights.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, key)
        return _nobody(errors_pb2.GROUP_AUTHORIZATION_FAILED, reason)
    brokers = services.metadata.brokers
    own = endpoints_at(brokers, listener).get(services.broker_id)
    if own is None:
        message = f"group {key!r}: broker {services.broker_id} is still starting; try again"
        return _nobody(errors_pb2.COORDINATOR_NOT_AVAILABLE, message)
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "node_id": services.broker_id,
        "host": own.host,
        "port": own.port,
    }


def _nobody(error_code: int, message: str) -> Message:
    return {
        "error_code": error_code,
        "error_message": message,
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }


async def offset_fetch(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    rights = services.authorizer.rights_of(context)
    wanted = request["topics"] or ()
    code: int = errors_pb2.NONE
    if not rights.may_group(AclOperation.DESCRIBE, request["group_id"]):
        code = errors_pb2.GROUP_AUTHORIZATION_FAILED
    describable = rights.topics(AclOperation.DESCRIBE, (one["name"] for one in wanted))
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _nothing_committed(
                    index,
                    code
                    if code or topic["name"] in describable
                    else errors_pb2.TOPIC_AUTHORIZATION_FAILED,
                )
                for index in topic["partition_indexes"]
            ],
        }
        for topic in wanted
    ]
    values = {"throttle_time": 0, "error_code": code, "topics": topics}
    return [codec.encode_response("offset_fetch", context.version, values)]


def _nothing_committed(partition: int, error_code: int) -> Message:
    return {
        "partition_index": partition,
        "committed_offset": _NO_OFFSET,
        "metadata": "",
        "error_code": error_code,
    }
