"""A streaming query of the metadata log: each micro-batch is what was written since the last.

The checkpoint holds a metadata offset and the cluster that it is of.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quorate.spark.errors import CheckpointError
from quorate.spark.metadata.batch_reader import MetadataReader
from quorate.spark.metadata.metadata_options import MetadataOptions
from quorate.spark.metadata.planning import KnownOffsets, MetadataRange, position_in

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1
IDLE_SECONDS: Final = 1.0
"""How long "there is nothing new" is believed: Spark's default trigger asks after every 10 ms, and
each time the quorum has to confirm it by a round of its own.
"""


class MetadataStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver one object for the life of the query; the executors have copies."""

    def __init__(
        self,
        options: MetadataOptions,
        schema: StructType,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._reader = MetadataReader(options, schema)
        self._idle: tuple[dict[str, Any], float] | None = None
        """Behind which offset there was nothing, and when."""
        self._last: KnownOffsets | None = None
        """With availableNow: what there was when it began."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        known = self._ask(latest_only=False)
        return checkpoint(position_in(known, self._options.starting), known.cluster_id)

    def getDefaultReadLimit(self) -> ReadLimit:
        """By ``maxOffsetsPerTrigger``."""
        at_most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if at_most is None else ReadMaxRows(at_most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is, and then end."""
        self._last = self._ask(latest_only=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends.

        Raises:
            CheckpointError: ``start`` is not of this log.
        """
        if self._is_idle_at(start):
            return start
        known = self._last or self._ask(latest_only=True)
        end = known.latest
        if isinstance(limit, ReadMaxRows):
            end = min(end, offset_of(start) + limit.max_rows)
        told = checkpoint(end, known.cluster_id)
        if told == start:
            self._idle = (start, self._monotonic())
        return told

    def _is_idle_at(self, start: dict[str, Any]) -> bool:
        if self._idle is None or self._idle[0] != start:
            return False
        return self._monotonic() - self._idle[1] < IDLE_SECONDS

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The range of the batch, if anything is in it.

        Raises:
            CheckpointError: the checkpoint is of another cluster, or of another source.
        """
        return [InputPartition(one) for one in [range_between(start, end)] if one.start < one.end]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The changes of the range, as Arrow batches of exactly the schema asked for."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: offsets are Spark's to keep."""

    def stop(self) -> None:
        """Nothing is open between two questions."""

    def _ask(self, *, latest_only: bool) -> KnownOffsets:
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.metadata.changes_reader import ask_offsets

        with self._options.connection.open() as cluster:
            return ask_offsets(cluster, self._options, latest_only=latest_only)


def checkpoint(offset: int, cluster_id: str) -> dict[str, Any]:
    """An offset as Spark keeps it."""
    return {"version": VERSION, "metadataOffset": offset, "cluster": cluster_id}


def offset_of(told: dict[str, Any]) -> int:
    """
    Raises:
        CheckpointError: no offset of this source.
    """
    offset = told.get("metadataOffset")
    if told.get("version") != VERSION or not isinstance(offset, int):
        raise CheckpointError(
            f"{told} is no offset of quorate-metadata, version {VERSION}: the checkpoint is of "
            "another source or of a newer release; use another checkpointLocation"
        )
    return offset


def range_between(start: dict[str, Any], end: dict[str, Any]) -> MetadataRange:
    """
    Raises:
        CheckpointError: the two are not of one log, or are no offsets of this source.
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
