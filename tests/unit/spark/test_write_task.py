"""What a writing task asks of the cluster before its first batch."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from quorate.client.bootstrap import BootstrapError
from quorate.spark.errors import ClusterUnavailable, UnknownTopic, WriteRefused
from quorate.spark.retries import Retries
from quorate.spark.writing.partitioner import TargetTopic
from quorate.spark.writing.write_task import describe_target
from quorate_proto.v1.errors_pb2 import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from quorate_proto.v1.replication_pb2 import (
    DescribeTopicsResponse,
    PartitionDescription,
    TopicDescription,
)

MISSING = TopicDescription(topic="t", error_code=UNKNOWN_TOPIC_OR_PARTITION)
THERE = TopicDescription(
    topic="t", topic_id=b"id", partitions=[PartitionDescription()] * 3, max_message_bytes=99
)


@dataclass
class Cluster:
    """Describes the topic in one way after the other, the last one for ever."""

    descriptions: list[TopicDescription]
    asking: int | Exception = LEADER_NOT_AVAILABLE
    asked: list[str] = field(default_factory=list)

    def describe_topics(self, topics: list[str]) -> DescribeTopicsResponse:
        assert topics == ["t"]
        first, *others = self.descriptions
        self.descriptions = others or [first]
        return DescribeTopicsResponse(topics=[first])

    def ask_for_topic(self, topic: str) -> int:
        self.asked.append(topic)
        if isinstance(self.asking, Exception):
            raise self.asking
        return self.asking


def describe(cluster: Any) -> TargetTopic:  # noqa: ANN401 - a stand-in
    return describe_target(cluster, "t", Retries(3, 100, lambda seconds: None))


def test_a_topic_that_is_there_is_not_asked_for() -> None:
    cluster = Cluster([THERE])
    assert describe(cluster) == TargetTopic(b"id", 3, 99)
    assert cluster.asked == []


def test_a_topic_that_is_not_there_is_asked_for_until_it_is() -> None:
    cluster = Cluster([MISSING, MISSING, THERE])
    assert describe(cluster).partitions == 3
    assert cluster.asked == ["t", "t"]


@pytest.mark.parametrize(
    ("asking", "error", "message"),
    [
        (UNKNOWN_TOPIC_OR_PARTITION, UnknownTopic, "no topic 't' and creates none"),
        (TOPIC_AUTHORIZATION_FAILED, WriteRefused, "TOPIC_AUTHORIZATION_FAILED"),
        (INVALID_TOPIC_EXCEPTION, WriteRefused, "INVALID_TOPIC_EXCEPTION"),
        (LEADER_NOT_AVAILABLE, ClusterUnavailable, "failed 4 times .*LEADER_NOT_AVAILABLE"),
        (BootstrapError("all are gone"), ClusterUnavailable, "all are gone"),
    ],
)
def test_a_topic_that_does_not_come_is_told_with_the_reason(
    asking: int | Exception, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        describe(Cluster([MISSING], asking))


def test_a_topic_that_may_not_be_seen_is_not_asked_for() -> None:
    hidden = TopicDescription(topic="t", error_code=TOPIC_AUTHORIZATION_FAILED)
    cluster = Cluster([hidden])
    with pytest.raises(WriteRefused, match=r"topic 't'.*TOPIC_AUTHORIZATION_FAILED"):
        describe(cluster)
    assert cluster.asked == []
