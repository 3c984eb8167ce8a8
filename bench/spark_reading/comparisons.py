"""Sources to compare with: a Python tuple per row, rows that are there already, and hardly any.

A module of its own, because executors import sources by name.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from quorate.spark.schema import source_schema
from quorate.spark.source import QuorateDataSource

_VALUE_BYTES: Final = 100
_BATCH_ROWS: Final = 10_000


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


class PrebuiltSource(DataSource):
    """``format("prebuilt")``: as many rows of the same sizes, without a topic to read them from.

    One Arrow batch is made at the start of a task and handed out again and again. What such a query
    costs, a Python source cannot save.
    """

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "prebuilt"

    def schema(self) -> StructType:
        """Return the schema of ``quorate``."""
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> "PrebuiltReader":
        """A reader of ``rows`` rows in ``partitions`` partitions, as the options say."""
        return PrebuiltReader(schema, int(self.options["rows"]), int(self.options["partitions"]))


class PrebuiltReader(DataSourceReader):
    """Hands out batches of about 1 MiB, as the reader of ``quorate`` does."""

    def __init__(self, schema: StructType, rows: int, partitions: int) -> None:
        self._schema = schema
        self._partitions = partitions
        self._rows = rows // partitions

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each of the topic."""
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the same batch until there are enough rows."""
        row = {
            "key": None,
            "value": bytes(_VALUE_BYTES),
            "topic": "rows",
            "partition": partition.value,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(0, UTC),
            "timestampType": 0,
        }
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        columns = [pa.repeat(pa.scalar(row[one.name], one.type), _BATCH_ROWS) for one in wanted]
        batch = pa.RecordBatch.from_arrays(columns, schema=wanted)
        for done in range(0, self._rows, _BATCH_ROWS):
            yield batch.slice(0, self._rows - done)


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
