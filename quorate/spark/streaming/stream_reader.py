"""A streaming query, as Spark talks to it: offsets as JSON, limits as `ReadLimit`.

On the driver Spark keeps one reader, in a process of its own, for the life of the query; what the
executors have is a copy of a fresh one. The checkpoint is the only account of what has been read;
with ``commitGroup`` a consumer group shows it, too. Spark tells a batch's success twice: by
`commit` when it plans the next one, and by asking for what comes after it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.streaming.checkpoint import parse_offsets
from quorate.spark.streaming.planner import StreamPlanner
from quorate.spark.streaming.stream_options import StreamOptions

if TYPE_CHECKING:
    import pyarrow as pa


class QuorateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, reads their ranges on the executors."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = options.limits
        reading = options.reading
        commits = (
            None
            if reading.commits is None
            else StreamCommits(reading.connection, reading.commits, monotonic)
        )
        self._planner = StreamPlanner(options, monotonic, commits)
        self._reader = QuorateReader(options.reading, schema)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins, by startingOffsets and its kin."""
        return self._planner.initial(time.time_ns() // 1_000_000).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits that the options set; there is no type for two of them at once."""
        if self._limits.at_most is not None:
            return ReadMaxRows(self._limits.at_most)
        if self._limits.at_least is not None:
            return ReadMinRows(self._limits.at_least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is, and then end."""
        self._planner.stop_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; ``start``, to the letter, if there is to be none.

        Raises:
            QuorateSourceError: the checkpoint is no good, records are lost, or nobody answers.
        """
        end = self._planner.next(
            parse_offsets(start),
            limited=not isinstance(limit, ReadAllAvailable),
            at_most=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs, for the query's progress."""
        latest = self._planner.latest_seen()
        return latest.to_json() if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition for each range of the batch.

        Raises:
            QuorateSourceError: the checkpoint is no good, records are lost, or nobody answers.
        """
        ranges = self._planner.ranges(parse_offsets(start), parse_offsets(end))
        return [InputPartition(offsets) for offsets in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of one range, as Arrow batches of exactly the schema asked for."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch has succeeded; offsets are Spark's to keep.

        Raises:
            CallRefused: the group has live members, or we may not read it or a topic.
        """
        self._planner.done(parse_offsets(end))

    def stop(self) -> None:
        """Close all connections."""
        self._planner.close()
