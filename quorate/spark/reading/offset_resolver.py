"""Turns positions into offsets: it asks the leaders, and interprets their answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import CallRefused, RangeUnavailable
from quorate.spark.offset_ranges import EARLIEST, LATEST, DescribedTopic, OffsetQuestion
from quorate.spark.options.offset_positions import (
    AtOffset,
    AtTime,
    BeforeNow,
    FromEdge,
    OffsetBound,
    Position,
)
from quorate.spark.options.topic_subscription import Subscription

if TYPE_CHECKING:
    from quorate.spark.cluster_client import ClusterClient

ListedOffsets = Mapping[OffsetQuestion, int]
"""The offset that answers each question; -1 if no record is at or after the time asked for."""


def known_topics(cluster: "ClusterClient", subscription: Subscription) -> dict[str, DescribedTopic]:
    """Return the existing topics that the subscription may mean; for a pattern, all topics."""
    names = [*subscription.topics, *(subscription.partitions or ())]
    response = cluster.describe_topics(names, every=subscription.pattern is not None)
    return {
        topic.topic: DescribedTopic(topic.topic_id, len(topic.partitions))
        for topic in response.topics
        if not topic.error_code
    }


def list_offsets(cluster: "ClusterClient", questions: Iterable[OffsetQuestion]) -> ListedOffsets:
    """Ask the leaders for offsets.

    Raises:
        CallRefused: a leader refused a question for good.
        ClusterUnavailable: a leader did not answer within the retries.
    """
    from quorate.spark.call_errors import error_name

    answers = cluster.list_offsets(questions)
    for question, answer in answers.items():
        if answer.error_code:
            raise CallRefused(
                f"listing offsets of {question.topic_partition} was refused: "
                f"{error_name(answer.error_code)}"
            )
    return {question: answer.offset for question, answer in answers.items()}


def offset_questions(
    partitions: Sequence[TopicPartition], now_ms: int, *bounds: OffsetBound
) -> Iterator[OffsetQuestion]:
    """Yield all questions that planning needs: both edges of every partition, and the times that
    the bounds name."""
    for partition in partitions:
        yield OffsetQuestion(partition, EARLIEST)
        yield OffsetQuestion(partition, LATEST)
        for bound in bounds:
            if (time_ms := _time_ms(bound.at(partition), now_ms)) is not None:
                yield OffsetQuestion(partition, time_ms)


@dataclass(frozen=True, slots=True)
class OffsetResolver:
    """Turns positions into offsets, by the answers of the leaders."""

    offsets: ListedOffsets
    now_ms: int

    def edges(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset of the log, and the one behind the last that may be read.

        The two are equal if a transaction has been open since before the log start offset: then
        nothing may be read.
        """
        first = self.offsets[OffsetQuestion(partition, EARLIEST)]
        return first, max(first, self.offsets[OffsetQuestion(partition, LATEST)])

    def resolve(
        self, position: Position, partition: TopicPartition, *, absent_is_latest: bool
    ) -> int:
        """Return the offset that a position means. A relative position never leaves the log.

        Raises:
            RangeUnavailable: no record is at or after the time, and ``absent_is_latest`` is off.
        """
        first, behind_last = self.edges(partition)
        if isinstance(position, AtOffset):
            return position.offset
        if isinstance(position, FromEdge):
            if position.edge == EARLIEST:
                return min(first + position.distance, behind_last)
            return max(behind_last - position.distance, first)
        time_ms = _time_ms(position, self.now_ms)
        assert time_ms is not None
        offset = self.offsets[OffsetQuestion(partition, time_ms)]
        if offset >= 0:
            return offset
        if absent_is_latest or isinstance(position, BeforeNow):
            return behind_last
        raise RangeUnavailable(
            f"no record of topic {partition.topic} partition {partition.partition} is at or after "
            f"{time_ms} ms: set startingOffsetsByTimestampStrategy=latest to go on"
        )


def _time_ms(position: Position, now_ms: int) -> int | None:
    if isinstance(position, AtTime):
        return position.timestamp_ms
    # A time before 1970 means the same as 1970. Negative numbers are other questions.
    return max(now_ms - position.age_ms, 0) if isinstance(position, BeforeNow) else None
