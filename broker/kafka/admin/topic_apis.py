"""The APIs CreateTopics (19), DeleteTopics (20) and CreatePartitions (37, C14).

The controller carries them out.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.changes.authorization import NOT_DISCLOSED
from quorate.broker.changes.table import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from quorate.broker.kafka.admin import new_topic_configs
from quorate.broker.kafka.admin.new_topic_configs import NewTopicConfigs
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import TopicId
from quorate_proto.v1 import admin_pb2, errors_pb2

_FIRST_VERSION_WITH_DELETION_DISABLED: Final = 3
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 6
FIRST_CREATION_REFUSED_OVER_QUOTA: Final = 6
FIRST_DELETION_REFUSED_OVER_QUOTA: Final = 5
FIRST_ADDITION_REFUSED_OVER_QUOTA: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED. Earlier ones are only muted
(Q4)."""
_NO_ID: Final = UUID(int=0)


async def create_topics(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    names = [topic["name"] for topic in request["topics"]]
    twice = named_twice(names)
    response = await services.forwarder.forward(
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(
            context=context.for_controller(
                "CreateTopics",
                request["timeout"],
                accept_over_quota=context.version < FIRST_CREATION_REFUSED_OVER_QUOTA,
            ),
            topics=[_new_topic(topic) for topic in request["topics"] if topic["name"] not in twice],
            validate_only=request["validate_only"],
        ),
        api_version=context.version,
    )
    results = result_per_topic(names, response.topics, response.error_code)
    context.throttle.at_least(response.throttle_time_ms)
    created = any(not result.error_code for result in results)
    configs: NewTopicConfigs | None = None
    if created and context.version >= new_topic_configs.FIRST_VERSION:
        configs = NewTopicConfigs(services, context.version)
    values = {"throttle_time": 0, "topics": [_created(result, configs) for result in results]}
    return values


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


def _created(result: admin_pb2.TopicResult, configs: NewTopicConfigs | None) -> Message:
    topic: Message = {
        "name": result.name,
        "topic_id": _uuid(result.topic_id),
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "configs": None,
    }
    if result.num_partitions == NOT_DISCLOSED:
        topic["topic_config_error_code"] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
    elif configs is not None and not result.error_code:
        topic["num_partitions"] = result.num_partitions
        topic["replication_factor"] = result.replication_factor
        topic["configs"] = configs.of(result.configs)
    return topic


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw) if raw else _NO_ID


async def delete_topics(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    names, topic_ids, refused = _to_delete(context.version, request)
    response = await services.forwarder.forward(
        DELETE_TOPICS,
        admin_pb2.DeleteTopicsRequest(
            context=context.for_controller(
                "DeleteTopics",
                request["timeout"],
                accept_over_quota=context.version < FIRST_DELETION_REFUSED_OVER_QUOTA,
            ),
            names=names,
            topic_ids=[TopicId(topic_id.bytes) for topic_id in topic_ids],
        ),
        api_version=context.version,
    )
    if response.error_code and not response.topics:
        results = [unanswered(name, response.error_code) for name in names]
        results += [_unanswered_id(topic_id, response.error_code) for topic_id in topic_ids]
    else:
        results = list(response.topics)
    results += refused
    context.throttle.at_least(response.throttle_time_ms)
    values = {
        "throttle_time": 0,
        "responses": [_deleted(context.version, result) for result in results],
    }
    return values


def _to_delete(
    version: int, request: Message
) -> tuple[list[str], list[UUID], list[admin_pb2.TopicResult]]:
    """Return the names and the ids of the topics to delete, and the results of those that are
    refused: without a name and an id, with both, or named more than once.
    """
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        topics = [(name, _NO_ID) for name in request["topic_names"]]
    else:
        topics = [(topic["name"], topic["topic_id"]) for topic in request["topics"]]
    names: list[str] = []
    topic_ids: list[UUID] = []
    refused: list[admin_pb2.TopicResult] = []
    for (name, topic_id), count in Counter(topics).items():
        if (name is None) is (topic_id == _NO_ID):
            refused.append(_invalid(name, topic_id, "name a topic either by its name or by its id"))
        elif count > 1:
            refused.append(_invalid(name, topic_id, "the topic is named more than once"))
        elif name is None:
            topic_ids.append(topic_id)
        else:
            names.append(name)
    return names, topic_ids, refused


def _invalid(name: str | None, topic_id: UUID, message: str) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(
        name=name or "",
        topic_id=topic_id.bytes,
        error_code=errors_pb2.INVALID_REQUEST,
        error_message=message,
    )


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


async def create_partitions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    names = [topic["name"] for topic in request["topics"]]
    twice = named_twice(names)
    response = await services.forwarder.forward(
        CREATE_PARTITIONS,
        admin_pb2.CreatePartitionsRequest(
            context=context.for_controller(
                "CreatePartitions",
                request["timeout"],
                accept_over_quota=context.version < FIRST_ADDITION_REFUSED_OVER_QUOTA,
            ),
            topics=[
                _new_partitions(topic) for topic in request["topics"] if topic["name"] not in twice
            ],
            validate_only=request["validate_only"],
        ),
        api_version=context.version,
    )
    results = result_per_topic(names, response.topics, response.error_code)
    context.throttle.at_least(response.throttle_time_ms)
    values = {
        "throttle_time": 0,
        "results": [
            {
                "name": result.name,
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
            for result in results
        ],
    }
    return values


def _new_partitions(topic: Message) -> admin_pb2.NewPartitions:
    return admin_pb2.NewPartitions(
        name=topic["name"],
        count=topic["count"],
        assignments=[
            admin_pb2.Replicas(broker_ids=one["broker_ids"]) for one in topic["assignments"] or ()
        ],
    )


# --- the controller's result for each topic -----------------------------------------------------


def named_twice(names: Iterable[str]) -> frozenset[str]:
    """Return the names that a request contains twice. They are not sent to the controller."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def result_per_topic(
    names: Sequence[str], results: Iterable[admin_pb2.TopicResult], error_code: int
) -> list[admin_pb2.TopicResult]:
    """Return one result for each of ``names``, in their order.

    ``results`` are the controller's, about the names that are not ``named_twice``. ``error_code``
    is that of the whole request.
    """
    by_name = {result.name: result for result in results}
    by_name.update({name: _refused(name) for name in named_twice(names)})
    return [by_name.get(name) or unanswered(name, error_code) for name in dict.fromkeys(names)]


def unanswered(name: str, error_code: int) -> admin_pb2.TopicResult:
    """Return the result of a topic for which the controller returned none, because the whole
    request failed."""
    return admin_pb2.TopicResult(
        name=name, error_code=error_code or errors_pb2.UNKNOWN_SERVER_ERROR
    )


def _refused(name: str) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(
        name=name,
        error_code=errors_pb2.INVALID_REQUEST,
        error_message=f"topic {name!r} is named more than once in the request",
    )
