"""Rows that Spark reads and transforms, and that its executors write as data files."""

import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.spark_rows import SparkRows, cause_of
from quorate.spark.offset_ranges import OffsetRange
from quorate.tables.data_files import FileLayout, WrittenRows, write_files


class SparkTableRows:
    """The rows of batches, in one Spark session."""

    def __init__(self, rows: SparkRows) -> None:
        """
        Raises:
            TransformError: the SQL cannot be run, or its result cannot be stored.
        """
        self._rows = rows
        self._schema = to_arrow_schema(rows.check(), timezone="UTC")
        self._frame: DataFrame | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        """Make the query of the ranges, whose columns are those of the newest schemas.

        Raises:
            PipelineError: the query cannot be planned.
        """
        try:
            self._frame = self._rows.frame(ranges)
            self._schema = to_arrow_schema(self._frame.schema, timezone="UTC")
        except (PySparkException, Py4JJavaError) as error:
            raise PipelineError(f"a batch cannot be planned: {cause_of(error)}") from error

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        """Write all rows of the ranges, which are planned, and return the files.

        A task that Spark repeats has deleted its files, unless its worker was killed: then they
        stay uncommitted, until orphans are removed.

        Raises:
            PipelineError: the rows could not be read, transformed or written.
        """
        task = functools.partial(_write_task, layout)
        try:
            assert self._frame is not None
            found = _mapped(self._frame, task).collect()
        except (PySparkException, Py4JJavaError) as error:
            raise PipelineError(f"a batch could not be written: {cause_of(error)}") from error
        return WrittenRows([one for row in found for one in pickle.loads(row.files)])

    def cancel(self) -> None:
        """Cancel all work of Spark; another thread may call this."""
        self._rows.cancel()

    def fraction_done(self) -> float:
        """Return the fraction of Spark's present tasks that is done."""
        return self._rows.fraction_done()


def _mapped(frame: DataFrame, task: Callable[[Any], Any]) -> DataFrame:
    """Return ``frame.mapInArrow(task, "files binary")``, which itself would ask for pandas."""
    function = UserDefinedFunction(
        task, "files binary", "write_files", PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    classic: Any = frame
    column: Any = function(*[frame[name] for name in frame.columns])
    mapped: DataFrame = type(classic)(
        classic._jdf.mapInArrow(column._jc, False, None), frame.sparkSession
    )
    return mapped


def _write_task(layout: FileLayout, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    written = write_files(layout, batches)
    yield pa.RecordBatch.from_pydict({"files": [pickle.dumps(written)]})
