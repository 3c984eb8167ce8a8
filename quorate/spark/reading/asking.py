"""What planning has to know of the cluster: its topics, and offsets of their partitions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quorate.spark.errors import CallRefused
from quorate.spark.options.subscription import Subscription
from quorate.spark.ranges import TopicPartition
from quorate.spark.reading.planning import KnownTopic
from quorate.spark.reading.resolving import OffsetOf

if TYPE_CHECKING:
    from quorate.spark.cluster import ClusterClient


def known_topics(cluster: "ClusterClient", subscription: Subscription) -> dict[str, KnownTopic]:
    """The topics that the subscription may mean, of those that the cluster has."""
    names = [*subscription.topics, *(subscription.partitions or ())]
    response = cluster.describe_topics(names, every=subscription.pattern is not None)
    return {
        topic.topic: KnownTopic(topic.topic_id, len(topic.partitions))
        for topic in response.topics
        if not topic.error_code
    }


def ask_offsets(
    cluster: "ClusterClient", questions: Iterable[tuple[TopicPartition, int]]
) -> OffsetOf:
    """Ask the leaders for all offsets that planning will want to know."""
    from quorate.spark.call_errors import error_name
    from quorate.spark.cluster import OffsetQuestion

    answers = cluster.list_offsets(OffsetQuestion(*question) for question in questions)
    for question, answer in answers.items():
        if answer.error_code:
            raise CallRefused(
                f"listing offsets of {question.topic_partition} was refused: "
                f"{error_name(answer.error_code)}"
            )

    def offset_of(partition: TopicPartition, timestamp_ms: int) -> int:
        return answers[OffsetQuestion(partition, timestamp_ms)].offset

    return offset_of
