"""Topics and their partitions: made, grown, shrunk, removed, described."""

from collections.abc import Sequence
from typing import Final

from quorate.client.calls.naming import by_topic
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    CreatePartitionsOptions,
    NewPartitions,
    NewTopic,
    PartitionName,
    TopicInfo,
    TopicResult,
)
from quorate.client.steps import Steps, ToAnyBroker, ToController
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2

_EVERY_TOPIC: Final = replication_pb2.DescribeTopicsRequest(all=True)


def create_topics(
    topics: Sequence[NewTopic], *, validate_only: bool = False
) -> Steps[list[TopicResult]]:
    """One result per topic, in order."""
    request = admin_pb2.CreateTopicsRequest(
        topics=[topic.to_proto() for topic in topics], validate_only=validate_only
    )
    answer: admin_pb2.CreateTopicsResponse = yield ToController(
        "CreateTopics", request, "creating topics"
    )
    return [TopicResult.from_proto(result) for result in answer.topics]


def delete_topics(names: Sequence[str]) -> Steps[list[TopicResult]]:
    """One result per name, in order."""
    request = admin_pb2.DeleteTopicsRequest(names=list(names))
    answer: admin_pb2.DeleteTopicsResponse = yield ToController(
        "DeleteTopics", request, "deleting topics"
    )
    return [TopicResult.from_proto(result) for result in answer.topics]


def create_partitions(
    partitions: Sequence[NewPartitions],
    options: CreatePartitionsOptions = CreatePartitionsOptions(),  # noqa: B008 - frozen
) -> Steps[list[TopicResult]]:
    """One result per topic, in order."""
    request = admin_pb2.CreatePartitionsRequest(
        topics=[topic.to_proto() for topic in partitions], validate_only=options.validate_only
    )
    answer: admin_pb2.CreatePartitionsResponse = yield ToController(
        "CreatePartitions", request, "adding partitions"
    )
    return [TopicResult.from_proto(result) for result in answer.topics]


def remove_partitions(
    partitions: Sequence[PartitionName], *, validate_only: bool = False
) -> Steps[list[TopicResult]]:
    """Remove partitions and their data: the highest ones of each topic. One result per topic.

    What is added later under their numbers begins empty.
    """
    request = admin_pb2.RemovePartitionsRequest(
        topics=by_topic(partitions), validate_only=validate_only
    )
    answer: admin_pb2.RemovePartitionsResponse = yield ToController(
        "RemovePartitions", request, "removing partitions"
    )
    return [TopicResult.from_proto(result) for result in answer.topics]


def list_topics() -> Steps[list[str]]:
    """Names of all topics, sorted."""
    answer = yield _describe(_EVERY_TOPIC)
    return sorted(topic.topic for topic in answer.topics)


def describe_topics(names: Sequence[str] = ()) -> Steps[list[TopicInfo]]:
    """The topics of those names, or all of them, sorted by name.

    Raises:
        RequestFailed: UNKNOWN_TOPIC_OR_PARTITION, naming the topic.
    """
    request = replication_pb2.DescribeTopicsRequest(topics=list(names)) if names else _EVERY_TOPIC
    answer: replication_pb2.DescribeTopicsResponse = yield _describe(request)
    for topic in answer.topics:
        if topic.error_code != errors_pb2.NONE:
            raise RequestFailed(topic.error_code, f"topic {topic.topic!r} does not exist")
    return sorted(map(TopicInfo.from_proto, answer.topics), key=lambda topic: topic.name)


def _describe(request: replication_pb2.DescribeTopicsRequest) -> ToAnyBroker:
    return ToAnyBroker("DescribeTopics", request, "range_read")
