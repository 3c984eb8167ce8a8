"""The Spark data source: what Spark asks for by the format ``quorate``.

`QuorateDataSource` lives on the driver and checks options and schema; what reads and what writes
are objects of their own, which travel to the executors by pickle.

`pushFilters` is left out on purpose: pyspark 4.3 shares the pushed state between queries on one
DataFrame and returns wrong rows. Cut by offsets instead.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quorate.spark.options.declaration import Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.options.table import INCLUDE_HEADERS
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import check_projection, source_schema
from quorate.spark.streaming.stream_options import parse_stream_options
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from quorate.spark.writing.write_options import parse_write_options
from quorate.spark.writing.writers import QuorateStreamWriter, QuorateWriter


class QuorateDataSource(DataSource):
    """Reads offset ranges of topics, and writes to topics: the format ``quorate``."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "quorate"

    def schema(self) -> StructType:
        """All columns; ``headers`` only with ``includeHeaders``."""
        # Spark does not say whether a batch or a streaming query asks.
        given = GivenOptions(self.options, None)
        return source_schema(include_headers=given[INCLUDE_HEADERS])

    def reader(self, schema: StructType) -> QuorateReader:
        """A reader of the columns in ``schema``."""
        options = parse_read_options(self.options, Scope.BATCH)
        check_projection(schema, include_headers=options.include_headers)
        return QuorateReader(options, schema)

    def streamReader(self, schema: StructType) -> QuorateStreamReader:
        """A reader of micro-batches of the columns in ``schema``."""
        options = parse_stream_options(self.options)
        check_projection(schema, include_headers=options.reading.include_headers)
        return QuorateStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> QuorateWriter:
        """A writer of rows with these columns."""
        return QuorateWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QuorateStreamWriter:
        """A writer of micro-batches; every output mode appends, as in Spark's Kafka sink."""
        return QuorateStreamWriter(parse_write_options(self.options), schema)
