"""The readers of the metadata log: batch queries, and streaming queries in micro-batches.

A range is read by a single task, because old values are found by applying the log from its oldest
state on, and two tasks would apply it twice. Spark keeps the plan of a batch query for the life of
a DataFrame, so "latest" is the offset at the first action. The checkpoint of a streaming query
holds a metadata offset and the id of its cluster.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorate.spark.metadata.metadata_query import MetadataOptions, MetadataRange, plan_range

if TYPE_CHECKING:
    import pyarrow as pa
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from quorate.spark.errors import CheckpointError
from quorate.spark.metadata.metadata_query import KnownOffsets, position_in

if TYPE_CHECKING:
    import pyarrow as pa


class MetadataBatchReader(DataSourceReader):
    """The reader of a batch query. It travels from the driver to the executor by pickle."""

    def __init__(self, options: MetadataOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one input partition, or none if the range is empty.

        Raises:
            QuorateSourceError: the range is not in the log, or no broker answers.
        """
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.metadata.metadata_range_reader import read_metadata_offsets

        with self._options.connection.open() as cluster:
            planned = plan_range(self._options, read_metadata_offsets(cluster, self._options))
        return [InputPartition(planned)] if planned.start < planned.end else []

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the changes of the range, as Arrow batches of exactly the schema of the query."""
        # Spark calls this with a placeholder if there is nothing to read.
        if isinstance(partition.value, MetadataRange):
            yield from self._read_range(partition.value)

    def _read_range(self, wanted: MetadataRange) -> "Iterator[pa.RecordBatch]":
        from quorate.spark.metadata.metadata_range_reader import MetadataRangeReader
        from quorate.spark.python_worker import until_closed

        schema = to_arrow_schema(self._schema, timezone="UTC")
        with self._options.connection.open() as cluster:
            for batch in MetadataRangeReader(cluster, wanted, self._options, schema).batches():
                with until_closed():
                    yield batch


VERSION: Final = 1
IDLE_SECONDS: Final = 1.0
"""The time for which the reader assumes that nothing is new after it found nothing.
Spark's default trigger asks every 10 ms, and for each answer the quorum needs a round of messages.
"""


class MetadataStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query: one object on the driver, and copies on the executors."""

    def __init__(
        self,
        options: MetadataOptions,
        schema: StructType,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._reader = MetadataBatchReader(options, schema)
        self._idle: tuple[dict[str, Any], float] | None = None
        """The offset behind which there was nothing, and the time of that answer."""
        self._last: KnownOffsets | None = None
        """The offsets of the log when the query began; None without the trigger availableNow."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins."""
        known = self._ask(latest_only=False)
        return checkpoint(position_in(known, self._options.starting), known.cluster_id)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of ``maxOffsetsPerTrigger``."""
        at_most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if at_most is None else ReadMaxRows(at_most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only what is in the log now, and then end."""
        self._last = self._ask(latest_only=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which the next batch ends.

        Raises:
            CheckpointError: ``start`` does not belong to this log.
        """
        if self._is_idle_at(start):
            return start
        known = self._last or self._ask(latest_only=True)
        end = known.latest
        if isinstance(limit, ReadMaxRows):
            end = min(end, offset_of(start) + limit.max_rows)
        found = checkpoint(end, known.cluster_id)
        if found == start:
            self._idle = (start, self._monotonic())
        return found

    def _is_idle_at(self, start: dict[str, Any]) -> bool:
        if self._idle is None or self._idle[0] != start:
            return False
        return self._monotonic() - self._idle[1] < IDLE_SECONDS

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan one input partition, or none if the range of the batch is empty.

        Raises:
            CheckpointError: the checkpoint belongs to another cluster or another source.
        """
        return [InputPartition(one) for one in [range_between(start, end)] if one.start < one.end]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the changes of the range, as Arrow batches of exactly the schema of the query."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark itself stores the offsets."""

    def stop(self) -> None:
        """Do nothing: no connection is open between two calls."""

    def _ask(self, *, latest_only: bool) -> KnownOffsets:
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.metadata.metadata_range_reader import read_metadata_offsets

        with self._options.connection.open() as cluster:
            return read_metadata_offsets(cluster, self._options, latest_only=latest_only)


def checkpoint(offset: int, cluster_id: str) -> dict[str, Any]:
    """Return the JSON of an offset for Spark's checkpoint."""
    return {"version": VERSION, "metadataOffset": offset, "cluster": cluster_id}


def offset_of(found: dict[str, Any]) -> int:
    """Return the metadata offset in a checkpoint.

    Raises:
        CheckpointError: the checkpoint holds no offset of this source.
    """
    offset = found.get("metadataOffset")
    if found.get("version") != VERSION or not isinstance(offset, int):
        raise CheckpointError(
            f"{found} is no offset of quorate-metadata, version {VERSION}: the checkpoint is of "
            "another source or of a newer release; use another checkpointLocation"
        )
    return offset


def range_between(start: dict[str, Any], end: dict[str, Any]) -> MetadataRange:
    """Return the range between two checkpoints.

    Raises:
        CheckpointError: the two do not belong to one log, or not to this source.
    """
    wanted = MetadataRange(offset_of(start), offset_of(end))
    if start.get("cluster") != end.get("cluster"):
        raise CheckpointError(
            f"the checkpoint is of cluster {start.get('cluster')!r}, this one is "
            f"{end.get('cluster')!r}: use another checkpointLocation"
        )
    if wanted.start > wanted.end:
        raise CheckpointError(
            f"the checkpoint is at metadata offset {wanted.start}, and the log ends at "
            f"{wanted.end}: the quorum was restored from a backup; use another checkpointLocation"
        )
    return wanted
