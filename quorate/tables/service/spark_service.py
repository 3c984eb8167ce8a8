"""Spark in a table service: it reads and writes batches that are large, on as many hosts as it has.

A job of Spark takes a fraction of a second however small it is. So the service keeps small batches
for itself, and rows are the same whoever writes them.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from quorate.pipeline.pipeline_config import PipelineConfig
from quorate.pipeline.spark_rows import SparkRows
from quorate.spark.java_home import JavaNotFound
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.session import open_session
from quorate.tables.data_files import FileLayout, WrittenRows
from quorate.tables.local_rows import LocalRows
from quorate.tables.spark_table_rows import SparkTableRows
from quorate.tables.table_errors import TableError
from quorate.tables.table_runner import TableRows

_logger = logging.getLogger(__name__)

SPARK_OFFSETS_MIN: Final = 500_000
"""Smaller batches are read and written by the service itself."""


class SparkService:
    """The Spark session of a table service; close it."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        """
        Args:
            master: the URL of Spark's master.
            settings: settings of Spark, by their full names.

        Raises:
            TableError: there is no Java for Spark.
        """
        try:
            self._session = open_session("quorate tables", master=master, settings=settings)
        except JavaNotFound as error:
            raise TableError(str(error)) from error

    def close(self) -> None:
        """Stop the session, and with it all work of Spark."""
        self._session.stop()

    def rows(self, config: PipelineConfig, local: LocalRows) -> TableRows:
        """Return the rows of a table: those of large batches by Spark, and others by ``local``."""
        return DividedWork(local, SparkTableRows(_spark_rows(self._session, config)))


def _spark_rows(session: SparkSession, config: PipelineConfig) -> SparkRows:
    return SparkRows(
        session,
        source=config.reading,
        include_headers=config.include_headers,
        sql="",
        compression=config.compression,
        job_group=config.name,
    )


class DividedWork:
    """Rows of which Spark writes the large batches. See `TableRows`."""

    def __init__(self, local: TableRows, spark: TableRows) -> None:
        self._local = local
        self._spark = spark
        self._chosen = local

    @property
    def schema(self) -> pa.Schema:
        return self._chosen.schema

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        offsets = sum(one.size for one in ranges)
        is_large = offsets >= SPARK_OFFSETS_MIN
        if is_large:
            _logger.info("Spark reads and writes %d offsets", offsets)
        self._chosen = self._spark if is_large else self._local
        self._chosen.plan(ranges)

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        return self._chosen.write(ranges, layout)

    def cancel(self) -> None:
        self._local.cancel()
        self._spark.cancel()

    def fraction_done(self) -> float:
        return self._chosen.fraction_done()
