"""The rows of a batch: Spark reads them by ranges of offsets, runs the SQL, and stages Parquet."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorate.pipeline.folder_columns import DATE, folder_columns
from quorate.pipeline.pipeline_errors import PipelineError, TransformError
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.source import QuorateDataSource
from quorate.tables.partitioning import PartitionField

VIEW: Final = "records"
NEEDED: Final = ("topic", "partition", "offset", "timestamp")
"""Columns that the SQL must leave as they are, because folders and files are named by them."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows arrive partition by partition, nearly in order of time, so sorting them gains nothing.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
}

HOUR_FORM: Final = "yyyy-MM-dd-HH"
"""The hours of folders: in UTC, as Iceberg's paths have them, and in the order of time."""

_INSTANTS: Final = (TimestampType, TimestampNTZType)
_FOLDER_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "hour": _INSTANTS,
    "day": (*_INSTANTS, DateType),
    "identity": (StringType, IntegralType, BooleanType, DateType),
}
"""The types of the columns that each transform takes."""

_TRACEBACK: Final = "Traceback (most recent call last):"

_logger = logging.getLogger(__name__)


class SparkRows:
    """Reads, transforms and stages the rows of batches, in one Spark session."""

    def __init__(
        self,
        session: SparkSession,
        *,
        source: Mapping[str, str],
        include_headers: bool,
        sql: str,
        compression: str,
        folder_fields: Sequence[PartitionField] = (),
        job_group: str = "",
    ) -> None:
        """
        Args:
            session: where Spark runs.
            source: the options of the format ``quorate``, without those that choose offsets.
            include_headers: True if the records have the column ``headers``.
            sql: the query over the view ``records``; empty keeps all columns.
            compression: the codec of the Parquet files.
            folder_fields: by what folders are named below topic and partition; empty for date.
            job_group: names the jobs of these rows among others of the session. Empty, the session
                is theirs alone.
        """
        self._session = session
        self.root = ""
        """The folder of the sink, with its scheme."""
        self._source = source
        self._include_headers = include_headers
        self._sql = sql
        self._compression = compression
        self._folder_fields = folder_fields
        self._job_group = job_group
        for name, value in SETTINGS.items():
            session.conf.set(name, value)

    def check(self) -> StructType:
        """Try the SQL without any rows, and return the columns of its result.

        Raises:
            TransformError: the SQL cannot be run, or its result cannot be stored.
        """
        nothing = self._session.createDataFrame([], self._source_columns())
        result = self._transformed(nothing).schema
        check_columns(result, nothing.schema)
        check_folder_columns(result, self._folder_fields)
        return result

    def _source_columns(self) -> StructType:
        """Return the columns that the source has with these options."""
        return QuorateDataSource({"subscribe": "-", **self._source}).schema()

    def write(self, ranges: Sequence[OffsetRange], path: str) -> None:
        """Write all rows of the ranges as Parquet files into a folder of the sink.

        Raises:
            PipelineError: the rows could not be read, transformed or written.
        """
        try:
            rows = self.frame(ranges).withColumns(made_columns(self._folder_fields))
            rows.write.mode("overwrite").partitionBy(*folder_columns(self._folder_fields)).option(
                "compression", self._compression
            ).parquet(f"{self.root}/{path}")
        except (PySparkException, Py4JJavaError) as error:
            raise PipelineError(f"a batch could not be written: {cause_of(error)}") from error

    def frame(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return all rows of the ranges, transformed. The caller's thread runs the query."""
        if self._job_group:
            self._session.sparkContext.setJobGroup(self._job_group, self._job_group)
        records = self._session.read.format("quorate").options(
            **{**self._source, **options_of(ranges)}
        )
        return self._transformed(records.load())

    def cancel(self) -> None:
        """Cancel the work of Spark; another thread may call this."""
        if self._job_group:
            self._session.sparkContext.cancelJobGroup(self._job_group)
        else:
            self._session.sparkContext.cancelAllJobs()

    def fraction_done(self) -> float:
        """Return the fraction of Spark's present tasks that is done."""
        tracker = self._session.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        return done / tasks if tasks else 0.0

    def _transformed(self, records: DataFrame) -> DataFrame:
        if not self._sql:
            return records
        records.createOrReplaceTempView(VIEW)
        try:
            return self._session.sql(self._sql)
        except AnalysisException as error:
            raise TransformError(f"transform.sql: {_first_lines(str(error))}") from error


def options_of(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Return the options that read exactly these ranges."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
        topic, number = one.topic_partition
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = one.start
        ends.setdefault(topic, {})[str(number)] = one.end
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


def made_columns(fields: Sequence[PartitionField]) -> dict[str, Column]:
    """Return the columns that folders are named by and that the rows do not have themselves."""
    if not fields:
        return {DATE: F.to_date("timestamp")}
    return {
        one.name: F.to_date(one.source)
        if one.transform == "day"
        else F.date_format(one.source, HOUR_FORM)
        for one in fields
        if one.transform != "identity"
    }


def check_columns(result: StructType, source: StructType) -> None:
    """Check that the result of the SQL can be stored.

    Raises:
        TransformError: the SQL drops or changes a column that folders and files are named by, or
            has a column that the pipeline makes itself.
    """
    names = [name.lower() for name in result.names]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise TransformError(
            f"transform.sql drops {', '.join(missing)}: select {', '.join(NEEDED)} as they are, "
            f"beside whatever else (SELECT *, … FROM {VIEW})"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TransformError(f"transform.sql has more than one column {', '.join(twice)}")
    for name in NEEDED:
        found, wanted = result[names.index(name)].dataType, source[name].dataType
        if found != wanted:
            raise TransformError(
                f"transform.sql makes {name} {found.simpleString()}: it must stay "
                f"{wanted.simpleString()}"
            )


def check_folder_columns(result: StructType, fields: Sequence[PartitionField]) -> None:
    """Check that folders can be named by columns of the result of the SQL.

    Raises:
        TransformError: a column is not there, has another type, or has the name of one that the
            pipeline makes itself.
    """
    types = {one.name.lower(): one.dataType for one in result}
    for made in (one.name for one in fields if one.transform != "identity") if fields else [DATE]:
        if made.lower() in types:
            raise TransformError(
                f"transform.sql has a column named {made}: the pipeline makes that one, as folders "
                "are named by it; name yours otherwise"
            )
    for field in fields:
        found = types.get(field.source.lower())
        if found is None:
            raise TransformError(
                f"sink.partition.by has {field}, and there is no column {field.source}: the "
                f"columns are {', '.join(result.names)}"
            )
        if not isinstance(found, _FOLDER_TYPES[field.transform]):
            raise TransformError(
                f"sink.partition.by has {field}, and {field.source} is {found.simpleString()}: no "
                "folder can be named so; transform.sql may make another column of it"
            )


def cause_of(error: Exception) -> str:
    """Return the line that says what to do. The text that Spark puts around it is only logged.

    Spark puts the traceback of a Python worker before the message of its error.
    """
    text = str(error)
    _logger.debug("%s", text)
    for line in reversed(text.splitlines()):
        _, found, message = line.partition("quorate.spark.errors.")
        if found:
            return message
    _, found, traceback = text.rpartition(_TRACEBACK)
    if found:
        # The calls are indented, and the error that ends them is not.
        own = [line for line in traceback.splitlines() if line.strip() and not line[0].isspace()]
        if own:
            return own[0]
    return _first_lines(text)


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()[:4] if line.strip())
