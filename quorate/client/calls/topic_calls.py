"""Creates, deletes and describes topics and their partitions."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from quorate.client.call_steps import Steps, ToAnyBroker, ToController, WaitBeforeRetry
from quorate.client.calls.naming import by_topic
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    NewPartitions,
    NewTopic,
    PartitionName,
    TopicInfo,
    TopicResult,
)
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2

T = TypeVar("T")

RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1_000
"""Kafka's defaults of retry.backoff.ms and retry.backoff.max.ms (KIP-580)."""

_EVERY_TOPIC: Final = replication_pb2.DescribeTopicsRequest(all=True)


def create_topics(
    topics: Sequence[NewTopic],
    options: CreateTopicsOptions = CreateTopicsOptions(),  # noqa: B008 - frozen
) -> Steps[list[TopicResult]]:
    """Create topics; return one result per topic, in order."""

    def ask(some: Sequence[NewTopic]) -> ToController:
        request = admin_pb2.CreateTopicsRequest(
            topics=[topic.to_proto() for topic in some], validate_only=options.validate_only
        )
        return ToController("CreateTopics", request, "creating topics")

    return (yield from _until_admitted(topics, ask, retry=options.retry_on_quota_violation))


def delete_topics(
    names: Sequence[str],
    options: DeleteTopicsOptions = DeleteTopicsOptions(),  # noqa: B008 - frozen
) -> Steps[list[TopicResult]]:
    """Delete topics; return one result per name, in order."""

    def ask(some: Sequence[str]) -> ToController:
        request = admin_pb2.DeleteTopicsRequest(names=list(some))
        return ToController("DeleteTopics", request, "deleting topics")

    return (yield from _until_admitted(names, ask, retry=options.retry_on_quota_violation))


def create_partitions(
    partitions: Sequence[NewPartitions],
    options: CreatePartitionsOptions = CreatePartitionsOptions(),  # noqa: B008 - frozen
) -> Steps[list[TopicResult]]:
    """Add partitions; return one result per topic, in order."""

    def ask(some: Sequence[NewPartitions]) -> ToController:
        request = admin_pb2.CreatePartitionsRequest(
            topics=[topic.to_proto() for topic in some], validate_only=options.validate_only
        )
        return ToController("CreatePartitions", request, "adding partitions")

    return (yield from _until_admitted(partitions, ask, retry=options.retry_on_quota_violation))


def _until_admitted(
    items: Sequence[T], ask: Callable[[Sequence[T]], ToController], *, retry: bool
) -> Steps[list[TopicResult]]:
    """Ask for ``items``; with ``retry``, ask again for those that exceed the client's quota.

    Each retry waits for the time that the controller names, at least (Q10).
    """
    attempts = 1
    answer = yield ask(items)
    results = [TopicResult.from_proto(one, answer.throttle_time_ms) for one in answer.topics]
    while retry:
        refused = [position for position, one in enumerate(results) if one.is_over_quota]
        if not refused:
            break
        if not (yield WaitBeforeRetry(retry_wait_ms(answer.throttle_time_ms, attempts))):
            break
        attempts += 1
        answer = yield ask([items[position] for position in refused])
        for position, one in zip(refused, answer.topics, strict=True):
            results[position] = TopicResult.from_proto(one, answer.throttle_time_ms)
    return results


def retry_wait_ms(throttle_time_ms: int, attempts: int) -> int:
    """Return how long to wait before what exceeds a quota is asked for again.

    After the time that the controller names, the bucket holds enough for one topic. A client that
    came back then with all others would be refused for all others, a hundred times a second. What
    it may use gathers while it waits longer, so that costs it nothing.
    """
    backoff_ms = RETRY_BACKOFF_MS << min(attempts - 1, RETRY_BACKOFF_MAX_MS.bit_length())
    return max(throttle_time_ms, min(backoff_ms, RETRY_BACKOFF_MAX_MS))


def remove_partitions(
    partitions: Sequence[PartitionName], *, validate_only: bool = False
) -> Steps[list[TopicResult]]:
    """Remove partitions and their data; they must be the highest ones of each topic.

    Return one result per topic. Partitions that are added later with the same numbers start empty.
    """
    request = admin_pb2.RemovePartitionsRequest(
        topics=by_topic(partitions), validate_only=validate_only
    )
    answer: admin_pb2.RemovePartitionsResponse = yield ToController(
        "RemovePartitions", request, "removing partitions"
    )
    return [TopicResult.from_proto(result) for result in answer.topics]


def list_topics() -> Steps[list[str]]:
    """Return the names of all topics, sorted."""
    answer = yield _describe(_EVERY_TOPIC)
    return sorted(topic.topic for topic in answer.topics)


def describe_topics(names: Sequence[str] = ()) -> Steps[list[TopicInfo]]:
    """Return the named topics, or all topics, sorted by name.

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
