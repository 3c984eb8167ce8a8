"""A batch query of the metadata log: planned on the driver, read by one task.

One, since old values come of applying the log from its oldest state on: two tasks would apply it
twice. Spark keeps the plan for the life of a DataFrame: "latest" is the offset at the first action.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorate.spark.metadata.metadata_options import MetadataOptions
from quorate.spark.metadata.planning import MetadataRange, plan_range

if TYPE_CHECKING:
    import pyarrow as pa


class MetadataReader(DataSourceReader):
    """Travels from the driver to the executor by pickle."""

    def __init__(self, options: MetadataOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The range, if anything is in it.

        Raises:
            QuorateSourceError: what is asked for is not there, or nobody answers.
        """
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.metadata.changes_reader import ask_offsets

        with self._options.connection.open() as cluster:
            planned = plan_range(self._options, ask_offsets(cluster, self._options))
        return [InputPartition(planned)] if planned.start < planned.end else []

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The changes of the range, as Arrow batches of exactly the schema asked for."""
        # Spark calls this with a placeholder if there was nothing to plan.
        if isinstance(partition.value, MetadataRange):
            yield from self._read_range(partition.value)

    def _read_range(self, wanted: MetadataRange) -> "Iterator[pa.RecordBatch]":
        from quorate.spark.metadata.changes_reader import ChangesReader

        schema = to_arrow_schema(self._schema, timezone="UTC")
        with self._options.connection.open() as cluster:
            yield from ChangesReader(cluster, wanted, self._options, schema).batches()
