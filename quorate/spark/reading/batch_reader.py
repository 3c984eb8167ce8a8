"""A batch query: ranges planned on the driver (`partitions`), each read on an executor (`read`).

Spark keeps the plan for the life of a DataFrame: "latest" is the offset at the first action.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorate.spark.committing.read_commits import SharedRange, check_commits, report, share
from quorate.spark.options.read_options import ReadOptions
from quorate.spark.ranges import OffsetRange
from quorate.spark.reading.asking import ask_offsets, known_topics
from quorate.spark.reading.planning import (
    check_partitions_named,
    plan_ranges,
    select_partitions,
    spread_over_leaders,
)
from quorate.spark.reading.resolving import Resolver, questions_for

if TYPE_CHECKING:
    import pyarrow as pa


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
        options, now_ms = self._options, time.time_ns() // 1_000_000
        with options.connection.open() as cluster:
            topics = known_topics(cluster, options.subscription)
            partitions = select_partitions(options.subscription, topics)
            check_partitions_named(partitions, options)
            questions = questions_for(partitions, now_ms, options.starting, options.ending)
            resolver = Resolver(ask_offsets(cluster, questions), now_ms)
            ranges = spread_over_leaders(
                plan_ranges(partitions, topics, options, resolver), cluster.leader_of
            )
            if options.commits is None:
                return [InputPartition(offsets) for offsets in ranges]
            check_commits(cluster, options.connection, options.commits, ranges)
        return [InputPartition(part) for part in share(ranges)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one range, as Arrow batches of exactly the schema asked for."""
        # Spark calls this with a placeholder if there was nothing to plan.
        if isinstance(partition.value, OffsetRange):
            yield from self._read_range(partition.value)
        elif isinstance(partition.value, SharedRange):
            yield from self._read_range(partition.value.offsets, partition.value)

    def _read_range(
        self, offsets: OffsetRange, part: SharedRange | None = None
    ) -> "Iterator[pa.RecordBatch]":
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.reading.range_reader import RangePolicy, RangeReader
        from quorate.spark.reading.workers import prepare_worker

        prepare_worker()
        options = self._options
        policy = RangePolicy(
            fail_on_data_loss=options.fail_on_data_loss,
            frame_timeout_ms=options.frame_timeout_ms,
            new_retries=options.connection.new_retries,
        )
        with options.connection.open() as cluster:
            cluster.refresh([offsets.topic_partition])
            schema = to_arrow_schema(self._schema, timezone="UTC")
            yield from RangeReader(cluster, offsets, schema, policy).batches()
            # Who asks for no more rows than there are before the last one never comes here.
            if part is not None and options.commits is not None:
                report(cluster, options.connection, options.commits, part)
