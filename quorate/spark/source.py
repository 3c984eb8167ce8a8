"""The Spark data source of the format ``quorate``.

`QuorateDataSource` lives on the driver, and checks options and schema. The readers and writers are
objects of their own, which travel to the executors by pickle.

`pushFilters` is left out on purpose: pyspark 4.3 shares the pushed state between queries on one
DataFrame, and returns wrong rows. Restrict a query by offsets instead.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.option_table import INCLUDE_HEADERS, SHARE_GROUP
from quorate.spark.options.read_options import read_options_of, stream_options_of
from quorate.spark.options.spark_properties import table_options, with_table_options
from quorate.spark.options.typed_options import read_typed_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import check_projection, source_schema
from quorate.spark.sharing.share_group_reader import ShareGroupReader
from quorate.spark.sharing.share_options import share_options_of
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from quorate.spark.typed.typed_columns import TypedColumns, TypedSelection, plan_columns
from quorate.spark.writing.data_writers import QuorateStreamWriter, QuorateWriter
from quorate.spark.writing.write_options import parse_write_options


class QuorateDataSource(DataSource):
    """Reads offset ranges of topics, and writes to topics: the format ``quorate``."""

    @classmethod
    def name(cls) -> str:
        """Return the short name of the format."""
        return "quorate"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._typed: TypedColumns | None = None
        """The typed columns that Spark was told of, if it asked for all columns: readers have the
        same, whatever has been registered since."""

    def schema(self) -> StructType:
        """Return all columns; ``headers`` only with ``includeHeaders``."""
        # Spark does not say whether this is for a batch query or a streaming query.
        given = GivenOptions(self.options, None)
        include_headers = given[INCLUDE_HEADERS]
        self._typed = plan_columns(read_typed_options(given))
        if self._typed is None:
            return with_table_options(source_schema(include_headers=include_headers), self.options)
        return with_table_options(self._typed.schema(include_headers=include_headers), self.options)

    def reader(self, schema: StructType) -> QuorateReader:
        """Return a reader of the columns in ``schema``."""
        given = GivenOptions(table_options(schema, self.options), Scope.BATCH)
        return QuorateReader(read_options_of(given), schema, self._selection(given, schema))

    def streamReader(self, schema: StructType) -> "QuorateStreamReader | ShareGroupReader":
        """Return a reader of micro-batches of the columns in ``schema``."""
        given = GivenOptions(table_options(schema, self.options), Scope.STREAM)
        if given.has(SHARE_GROUP):
            check_projection(schema, include_headers=given[INCLUDE_HEADERS])
            return ShareGroupReader(share_options_of(given), schema)
        return QuorateStreamReader(
            stream_options_of(given), schema, typed=self._selection(given, schema)
        )

    def _selection(self, given: GivenOptions, schema: StructType) -> TypedSelection | None:
        """Check the columns that a query selects; return how they are typed, if any is."""
        typed = self._typed or plan_columns(read_typed_options(given))
        if typed is None:
            check_projection(schema, include_headers=given[INCLUDE_HEADERS])
            return None
        return typed.select(schema, include_headers=given[INCLUDE_HEADERS])

    def writer(self, schema: StructType, overwrite: bool) -> QuorateWriter:
        """Return a writer of rows with these columns."""
        return QuorateWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QuorateStreamWriter:
        """Return a writer of micro-batches. Every output mode appends, as in Spark's Kafka sink."""
        return QuorateStreamWriter(parse_write_options(self.options), schema)
