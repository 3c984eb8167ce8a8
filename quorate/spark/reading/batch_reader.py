"""A batch query: ranges planned on the driver (`partitions`), each read on an executor (`read`).

Spark keeps the plan for the life of a DataFrame: "latest" is the offset at the first action.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.read_options import ReadOptions
from quorate.spark.ranges import OffsetRange, TopicPartition
from quorate.spark.reading.planning import (
    KnownTopic,
    OffsetOf,
    check_partitions_named,
    plan_ranges,
    questions_for,
    select_partitions,
)
from quorate.spark.retries import Retries

if TYPE_CHECKING:
    import pyarrow as pa

    from quorate.spark.cluster import ClusterClient


class QuorateReader(DataSourceReader):
    """Plans on the driver, reads on the executors; travels between them by pickle."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each range of offsets that holds something.

        Raises:
            QuorateSourceError: what is asked for is not there, or nobody answers.
        """
        from quorate.spark.cluster import ClusterClient

        options = self._options
        with ClusterClient(
            options.bootstrap_servers, self._new_retries(), options.security
        ) as cluster:
            topics = _known_topics(cluster, options)
            partitions = select_partitions(options.subscription, topics)
            check_partitions_named(partitions, options)
            offset_of = _ask_offsets(cluster, partitions, options)
            ranges = plan_ranges(partitions, topics, options, offset_of)
        return [InputPartition(offsets) for offsets in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one range, as Arrow batches of exactly the schema asked for."""
        # Spark calls this with a placeholder if there was nothing to plan.
        if isinstance(partition.value, OffsetRange):
            yield from self._read_range(partition.value)

    def _read_range(self, offsets: OffsetRange) -> "Iterator[pa.RecordBatch]":
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.cluster import ClusterClient
        from quorate.spark.reading.range_reader import RangePolicy, RangeReader

        options = self._options
        policy = RangePolicy(
            fail_on_data_loss=options.fail_on_data_loss,
            frame_timeout_ms=options.frame_timeout_ms,
            new_retries=self._new_retries(),
        )
        with ClusterClient(
            options.bootstrap_servers, policy.new_retries, options.security
        ) as cluster:
            cluster.refresh([offsets.topic_partition])
            schema = to_arrow_schema(self._schema, timezone="UTC")
            yield from RangeReader(cluster, offsets, schema, policy).batches()

    def _new_retries(self) -> "partial[Retries]":
        return partial(Retries, self._options.retries_max, self._options.retry_interval_ms)


def _known_topics(cluster: "ClusterClient", options: ReadOptions) -> dict[str, KnownTopic]:
    """The topics that the subscription may mean, of those that the cluster has."""
    subscription = options.subscription
    names = [*subscription.topics, *(subscription.partitions or ())]
    response = cluster.describe_topics(names, every=subscription.pattern is not None)
    return {
        topic.topic: KnownTopic(topic.topic_id, len(topic.partitions))
        for topic in response.topics
        if not topic.error_code
    }


def _ask_offsets(
    cluster: "ClusterClient", partitions: Sequence[TopicPartition], options: ReadOptions
) -> OffsetOf:
    """Ask the leaders for all offsets that planning will want to know."""
    from quorate.spark.cluster import OffsetQuestion, error_name

    questions = questions_for(partitions, options.starting, options.ending)
    answers = cluster.list_offsets(OffsetQuestion(*question) for question in questions)
    for question, answer in answers.items():
        if answer.error_code:
            raise ClusterUnavailable(
                f"listing offsets of {question.topic_partition} was refused: "
                f"{error_name(answer.error_code)}"
            )

    def offset_of(partition: TopicPartition, timestamp_ms: int) -> int:
        return answers[OffsetQuestion(partition, timestamp_ms)].offset

    return offset_of
