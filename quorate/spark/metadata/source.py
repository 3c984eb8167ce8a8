"""The format ``quorate-metadata``: who led what and when, who changed which configuration.

As in `quorate.spark.source`, nothing is pushed down: cut by offsets and record types.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quorate.spark.metadata.batch_reader import MetadataReader
from quorate.spark.metadata.columns import metadata_schema
from quorate.spark.metadata.metadata_options import parse_metadata_options
from quorate.spark.metadata.stream_reader import MetadataStreamReader
from quorate.spark.schema import check_columns


class QuorateMetadataSource(DataSource):
    """Reads ranges of the metadata log: ``spark.read.format("quorate-metadata")``."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "quorate-metadata"

    def schema(self) -> StructType:
        """All columns."""
        return metadata_schema()

    def reader(self, schema: StructType) -> MetadataReader:
        """A reader of the columns in ``schema``."""
        check_columns(schema, metadata_schema())
        return MetadataReader(parse_metadata_options(self.options), schema)

    def streamReader(self, schema: StructType) -> MetadataStreamReader:
        """A reader of micro-batches of the columns in ``schema``."""
        check_columns(schema, metadata_schema())
        return MetadataStreamReader(parse_metadata_options(self.options, streaming=True), schema)
