"""CreateTopics (19) and DeleteTopics (20): carried out by the controller, wherever they arrive."""

from typing import Final
from uuid import UUID

from broker.control.changes import CREATE_TOPICS, DELETE_TOPICS
from broker.control.guards import UNTOLD
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.kafka.topic_results import named_twice, result_per_topic, unanswered
from metadata_log.types import TopicId
from quorate_proto.v1 import admin_pb2, errors_pb2

_TOPIC_CONFIG: Final = 1
"""Kafka's ConfigSource of a value that was set for this topic."""

_FIRST_VERSION_WITH_DELETION_DISABLED: Final = 3
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 6
_FIRST_CREATION_REFUSED_OVER_QUOTA: Final = 6
_FIRST_DELETION_REFUSED_OVER_QUOTA: Final = 5
"""Clients of earlier versions do not know THROTTLING_QUOTA_EXCEEDED: they are only muted (Q4)."""
_NO_ID: Final = UUID(int=0)


async def create_topics(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    names = [topic["name"] for topic in request["topics"]]
    twice = named_twice(names)
    response = await ask_controller(
        services,
        context,
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(
            context=admin_context(
                context,
                "CreateTopics",
                request["timeout"],
                accept_over_quota=context.version < _FIRST_CREATION_REFUSED_OVER_QUOTA,
            ),
            topics=[_new_topic(topic) for topic in request["topics"] if topic["name"] not in twice],
            validate_only=request["validate_only"],
        ),
    )
    results = result_per_topic(names, response.topics, response.error_code)
    context.throttle.at_least(response.throttle_time_ms)
    values = {"throttle_time": 0, "topics": list(map(_created, results))}
    return [codec.encode_response("create_topics", context.version, values)]


def _new_topic(topic: Message) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=topic["name"],
        num_partitions=topic["num_partitions"],
        replication_factor=topic["replication_factor"],
        assignments=[
            admin_pb2.ReplicaAssignment(
                partition=item["partition_index"], broker_ids=item["broker_ids"]
            )
            for item in topic["assignments"]
        ],
        configs={
            item["name"]: item["value"] for item in topic["configs"] if item["value"] is not None
        },
    )


def _created(result: admin_pb2.TopicResult) -> Message:
    topic: Message = {
        "name": result.name,
        "topic_id": _uuid(result.topic_id),
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "configs": None,
    }
    if result.num_partitions == UNTOLD:
        topic["topic_config_error_code"] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
    elif not result.error_code:
        topic["num_partitions"] = result.num_partitions
        topic["replication_factor"] = result.replication_factor
        topic["configs"] = [
            {
                "name": name,
                "value": value,
                "read_only": False,
                "config_source": _TOPIC_CONFIG,
                "is_sensitive": False,
            }
            for name, value in sorted(result.configs.items())
        ]
    return topic


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw) if raw else _NO_ID


async def delete_topics(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    names, topic_ids = _to_delete(context.version, request)
    response = await ask_controller(
        services,
        context,
        DELETE_TOPICS,
        admin_pb2.DeleteTopicsRequest(
            context=admin_context(
                context,
                "DeleteTopics",
                request["timeout"],
                accept_over_quota=context.version < _FIRST_DELETION_REFUSED_OVER_QUOTA,
            ),
            names=names,
            topic_ids=[TopicId(topic_id.bytes) for topic_id in topic_ids],
        ),
    )
    if response.error_code and not response.topics:
        results = [unanswered(name, response.error_code) for name in names]
        results += [_unanswered_id(topic_id, response.error_code) for topic_id in topic_ids]
    else:
        results = list(response.topics)
    context.throttle.at_least(response.throttle_time_ms)
    values = {
        "throttle_time": 0,
        "responses": [_deleted(context.version, result) for result in results],
    }
    return [codec.encode_response("delete_topics", context.version, values)]


def _to_delete(version: int, request: Message) -> tuple[list[str], list[UUID]]:
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return list(dict.fromkeys(request["topic_names"])), []
    topics = request["topics"]
    names = dict.fromkeys(topic["name"] for topic in topics if topic["name"] is not None)
    topic_ids = dict.fromkeys(topic["topic_id"] for topic in topics if topic["name"] is None)
    return list(names), list(topic_ids)


def _unanswered_id(topic_id: UUID, error_code: int) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(topic_id=topic_id.bytes, error_code=error_code)


def _deleted(version: int, result: admin_pb2.TopicResult) -> Message:
    code = result.error_code
    if (
        code == errors_pb2.TOPIC_DELETION_DISABLED
        and version < _FIRST_VERSION_WITH_DELETION_DISABLED
    ):
        code = errors_pb2.INVALID_REQUEST
    return {
        "name": result.name or None,
        "topic_id": _uuid(result.topic_id),
        "error_code": code,
        "error_message": result.error_message or None,
    }
