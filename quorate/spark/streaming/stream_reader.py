"""The reader of a streaming query, with the interface of Spark: offsets as JSON, `ReadLimit`.

On the driver, Spark keeps one reader for the life of the query, in a process of its own. The
executors have copies of a fresh reader. Only the checkpoint decides what has been read; with
``commitGroup`` a consumer group shows it, too. Spark reports the success of a batch twice: by
`commit` when it plans the next batch, and by asking for the offsets after it.
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
from quorate.spark.options.read_options import StreamOptions
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.streaming.stream_checkpoint import parse_offsets
from quorate.spark.streaming.stream_planner import StreamPlanner
from quorate.spark.typed.typed_columns import TypedSelection

if TYPE_CHECKING:
    import pyarrow as pa


class QuorateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their ranges on the executors."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        monotonic: Callable[[], float] = time.monotonic,
        typed: TypedSelection | None = None,
    ) -> None:
        self._limits = options.limits
        reading = options.reading
        commits = (
            None
            if reading.commits is None
            else StreamCommits(reading.connection, reading.commits, monotonic)
        )
        self._planner = StreamPlanner(options, monotonic, commits)
        self._reader = QuorateReader(options.reading, schema, typed)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a new query begins, by the options ``starting…``."""
        return self._planner.initial(time.time_ns() // 1_000_000).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set. Spark has no type for two limits at once."""
        if self._limits.at_most is not None:
            return ReadMaxRows(self._limits.at_most)
        if self._limits.at_least is not None:
            return ReadMinRows(self._limits.at_least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only what is in the logs at the first look, and then end."""
        self._planner.stop_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or exactly the text of ``start`` if there is none.

        Raises:
            QuorateSourceError: the checkpoint cannot be used, records are lost, or no broker
                answers.
        """
        end = self._planner.next(
            parse_offsets(start),
            limited=not isinstance(limit, ReadAllAvailable),
            at_most=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs, for the progress of the query."""
        latest = self._planner.latest_seen()
        return latest.to_json() if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one input partition for each range of the batch.

        Raises:
            QuorateSourceError: the checkpoint cannot be used, records are lost, or no broker
                answers.
        """
        ranges = self._planner.ranges(parse_offsets(start), parse_offsets(end))
        return [InputPartition(offsets) for offsets in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one range, as Arrow batches of exactly the schema of the query."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that a batch has succeeded. Spark itself stores the offsets.

        Raises:
            CallRefused: the group has live members, or the user may not read it or a topic.
        """
        self._planner.done(parse_offsets(end))

    def stop(self) -> None:
        """Close all connections."""
        self._planner.close()
