"""Sources to compare with: the same range as one Python tuple per row, and one that does nothing.

A module of its own, because executors import sources by name.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from quorate.spark.source import QuorateDataSource


class RowTupleSource(DataSource):
    """``format("row-tuples")``, with the options of ``quorate``."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "row-tuples"

    def schema(self) -> StructType:
        """Return the schema of ``quorate``."""
        return QuorateDataSource(self.options).schema()

    def reader(self, schema: StructType) -> "RowTupleReader":
        """The reader of ``quorate``, by rows."""
        return RowTupleReader(QuorateDataSource(self.options).reader(schema))


class RowTupleReader(DataSourceReader):
    """Reads as its inner reader does, and takes each batch apart."""

    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> Any:  # noqa: ANN401 - as pyspark has it
        """Return the partitions of the inner reader."""
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Row by row."""
        batches: Iterator[Any] = self._inner.read(partition)
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class IdleSource(DataSource):
    """``format("idle")``: a row of each of two partitions, so that both cores have a worker."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "idle"

    def schema(self) -> StructType:
        """A number."""
        return StructType([StructField("id", LongType())])

    def reader(self, schema: StructType) -> "IdleReader":
        """A reader that takes no time."""
        return IdleReader()


class IdleReader(DataSourceReader):
    """Shows what a Python worker needs before it has read anything."""

    def partitions(self) -> list[InputPartition]:
        """Two."""
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row."""
        yield pa.RecordBatch.from_pydict({"id": [partition.value]})
