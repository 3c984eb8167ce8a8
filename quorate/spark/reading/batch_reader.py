"""The reader of a batch query: `partitions` plans ranges on the driver, `read` reads one range.

Spark keeps the plan for the life of a DataFrame, so "latest" is the offset at the first action.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorate.spark.committing.batch_commits import (
    SharedRange,
    check_commits,
    report_range_read,
    share_ranges,
)
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.read_options import ReadOptions
from quorate.spark.reading.offset_resolver import (
    OffsetResolver,
    known_topics,
    list_offsets,
    offset_questions,
)
from quorate.spark.reading.range_planning import (
    check_partitions_named,
    plan_ranges,
    select_partitions,
    spread_over_leaders,
)
from quorate.spark.typed.typed_columns import TypedSelection

if TYPE_CHECKING:
    import pyarrow as pa


class QuorateReader(DataSourceReader):
    """Plans on the driver, and reads on the executors. It travels between them by pickle."""

    def __init__(
        self, options: ReadOptions, schema: StructType, typed: TypedSelection | None = None
    ) -> None:
        """
        Args:
            options: the options of the query.
            schema: the columns that are read from the log.
            typed: how its keys and values become typed columns; None if they stay bytes.
        """
        self._options = options
        self._schema = schema if typed is None else typed.raw_schema
        self._typed = typed

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one input partition for each range of offsets that is not empty.

        Raises:
            QuorateSourceError: something that the query names does not exist, or no broker answers.
        """
        options, now_ms = self._options, time.time_ns() // 1_000_000
        with options.connection.open() as cluster:
            topics = known_topics(cluster, options.subscription)
            partitions = select_partitions(options.subscription, topics)
            check_partitions_named(partitions, options)
            questions = offset_questions(partitions, now_ms, options.starting, options.ending)
            resolver = OffsetResolver(list_offsets(cluster, questions), now_ms)
            ranges = spread_over_leaders(
                plan_ranges(partitions, topics, options, resolver), cluster.leader_of
            )
            if options.commits is None:
                return [InputPartition(offsets) for offsets in ranges]
            check_commits(cluster, options.connection, options.commits, ranges)
        return [InputPartition(part) for part in share_ranges(ranges)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one range, as Arrow batches of exactly the schema of the query."""
        # Spark calls this with a placeholder if there is nothing to read.
        if isinstance(partition.value, OffsetRange):
            yield from self._read_range(partition.value)
        elif isinstance(partition.value, SharedRange):
            yield from self._read_range(partition.value.offsets, partition.value)

    def _read_range(
        self, offsets: OffsetRange, part: SharedRange | None = None
    ) -> "Iterator[pa.RecordBatch]":
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.python_worker import prepare_worker, until_closed
        from quorate.spark.reading.range_reader import RangePolicy, RangeReader

        prepare_worker()
        options = self._options
        policy = RangePolicy(
            fail_on_data_loss=options.fail_on_data_loss,
            frame_timeout_ms=options.frame_timeout_ms,
            retry_policy=options.connection.retry_policy,
        )
        with options.connection.open() as cluster:
            cluster.refresh([offsets.topic_partition])
            schema = to_arrow_schema(self._schema, timezone="UTC")
            batches = RangeReader(cluster, offsets, schema, policy).batches()
            for batch in self._decoded(batches, offsets):
                with until_closed():
                    yield batch
            # A query with LIMIT that stops before the last row never gets here.
            if part is not None and options.commits is not None:
                report_range_read(cluster, options.connection, options.commits, part)

    def _decoded(
        self, batches: "Iterator[pa.RecordBatch]", offsets: OffsetRange
    ) -> "Iterator[pa.RecordBatch]":
        """Return the batches with typed columns, if the query has any."""
        if self._typed is None:
            return batches
        from quorate.spark.typed.typed_batches import TypedBatches

        typed = TypedBatches(self._typed, offsets.topic_partition)
        return map(typed.typed, batches)
