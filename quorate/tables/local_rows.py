"""Rows that this process reads itself and writes with pyarrow, without Spark and without Java.

Ranges are read by threads: decoding, compressing and writing happen outside of Python's lock. The
rows are exactly those that Spark gets, as the same reader reads them.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.errors import QuorateSourceError
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.source import QuorateDataSource
from quorate.tables.data_files import FileLayout, WrittenFile, write_files
from quorate.tables.storage import delete_files, open_storage
from quorate.tables.table_errors import TableUnavailable


class _Cancelled(PipelineError):
    """The run is no longer in charge."""


class LocalRows:
    """The rows of batches, read and written by threads of this process; close it."""

    def __init__(self, source: Mapping[str, str], threads: int) -> None:
        """
        Args:
            source: the options of the format ``quorate``, without those that choose offsets.
            threads: how many ranges are read at once.
        """
        # The reader is given its ranges, so what it subscribes to does not matter.
        options = {"subscribe": "-", **source}
        self._source = QuorateDataSource(options)
        columns = self._source.schema()
        self._reader: QuorateReader = self._source.reader(columns)
        self._schema = to_arrow_schema(columns, timezone="UTC")
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="rows")
        self._cancelled = threading.Event()
        self._tasks = 0
        self._done = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def close(self) -> None:
        """End the threads."""
        self._cancelled.set()
        self._threads.shutdown()

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> list[WrittenFile]:
        """Write all rows of the ranges, and return the files.

        Raises:
            PipelineError: the rows could not be read or written; no file is left.
        """
        self._tasks, self._done = len(ranges), 0
        tasks = [self._threads.submit(self._write, one, layout) for one in ranges]
        written: list[WrittenFile] = []
        failure: BaseException | None = None
        for task in tasks:
            error = task.exception()
            if error is None:
                written += task.result()
            failure = failure or error
            self._done += 1
        if failure is None:
            return written
        delete_files(open_storage(layout.storage), [one.location for one in written])
        if isinstance(failure, QuorateSourceError):
            raise PipelineError(str(failure)) from failure
        if isinstance(failure, OSError):
            raise TableUnavailable(f"data files at {layout.folder}: {failure}") from failure
        raise failure

    def cancel(self) -> None:
        """Cancel the work that is under way; another thread may call this."""
        self._cancelled.set()

    def fraction_done(self) -> float:
        """Return the fraction of the ranges of the present batch that is done."""
        return self._done / self._tasks if self._tasks else 0.0

    def _write(self, offsets: OffsetRange, layout: FileLayout) -> list[WrittenFile]:
        return write_files(layout, self._read(offsets))

    def _read(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.read(InputPartition(offsets)):
            if self._cancelled.is_set():
                raise _Cancelled("the run is no longer in charge: what it was writing is dropped")
            yield batch
