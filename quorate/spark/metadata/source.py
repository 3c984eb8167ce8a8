"""The format ``quorate-metadata``: it shows, for example, past leaders and configuration changes.

As in `quorate.spark.source`, no filters are pushed down. Restrict a query by offsets and record
types instead.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quorate.spark.metadata.metadata_columns import metadata_schema
from quorate.spark.metadata.metadata_query import parse_metadata_options
from quorate.spark.metadata.metadata_readers import MetadataBatchReader, MetadataStreamReader
from quorate.spark.schema import check_columns


class QuorateMetadataSource(DataSource):
    """Reads ranges of the metadata log: ``spark.read.format("quorate-metadata")``."""

    @classmethod
    def name(cls) -> str:
        """Return the short name of the format."""
        return "quorate-metadata"

    def schema(self) -> StructType:
        """Return all columns."""
        return metadata_schema()

    def reader(self, schema: StructType) -> MetadataBatchReader:
        """Return a reader of the columns in ``schema``."""
        check_columns(schema, metadata_schema())
        return MetadataBatchReader(parse_metadata_options(self.options), schema)

    def streamReader(self, schema: StructType) -> MetadataStreamReader:
        """Return a reader of micro-batches of the columns in ``schema``."""
        check_columns(schema, metadata_schema())
        return MetadataStreamReader(parse_metadata_options(self.options, streaming=True), schema)
