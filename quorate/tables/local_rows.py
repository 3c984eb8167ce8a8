"""Rows that this process reads itself and writes with pyarrow, without Spark and without Java.

Ranges are read by threads: decoding, compressing and writing happen outside of Python's lock. The
rows are exactly those that Spark gets, as the same reader reads them.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.errors import QuorateSourceError, RegistryUnavailable
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.option_table import SUBSCRIBE
from quorate.spark.typed.typed_batches import TypedBatches
from quorate.tables.data_files import FileLayout, WrittenFile, WrittenRows, write_files
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.keyed_records import KeyedRecords
from quorate.tables.latest_rows import LatestRows
from quorate.tables.row_plan import RowPlan, plan_rows
from quorate.tables.storage import delete_files, open_storage
from quorate.tables.table_errors import TableUnavailable
from quorate.tables.write_mode import WriteMode

_logger = logging.getLogger(__name__)


class _Cancelled(PipelineError):
    """The run is no longer in charge."""


class LocalRows:
    """The rows of batches, read and written by threads of this process; close it."""

    def __init__(
        self,
        source: Mapping[str, str],
        threads: int,
        dead_letters: DeadLetters | None = None,
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        """
        Args:
            source: the options of the format ``quorate``, without those that choose offsets. Of
                ``subscribe`` only the subjects of schemas depend.
            threads: how many ranges are read at once.
            dead_letters: takes the records that cannot be decoded; without it, one of them ends the
                batch. It is closed with this object.
            mode: whether all records become rows, or only the newest ones of their keys.
        """
        # The reader is given its ranges, so it need not know topics.
        self._options = {SUBSCRIBE.name: "-", **source}
        self._dead_letters = dead_letters
        self._mode = mode
        self._plan = self._planned()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="rows")
        self._cancelled = threading.Event()
        self._tasks = 0
        self._done = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._plan.schema

    def close(self) -> None:
        """End the threads."""
        self._cancelled.set()
        self._threads.shutdown()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        """Look at the newest schemas of keys and values, by which the ranges are read then.

        Raises:
            PipelineError: a schema cannot be found or used.
        """
        try:
            self._plan = self._planned()
        except RegistryUnavailable as error:
            # What the schemas that are known do not fit is told when it is read.
            _logger.warning("the schemas stay those of the batch before: %s", error)
        except QuorateSourceError as error:
            raise PipelineError(str(error)) from error

    def _planned(self) -> RowPlan:
        return plan_rows(
            self._options,
            divides=self._dead_letters is not None,
            is_keyed=self._mode is WriteMode.UPSERT,
        )

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        """Write the rows of the ranges, and return the files.

        Raises:
            PipelineError: the rows could not be read or written; no file is left.
        """
        self._tasks, self._done = len(ranges), 0
        tasks = [self._threads.submit(self._write, one, layout) for one in ranges]
        written: list[WrittenFile] = []
        keys: dict[TopicPartition, pa.Array] = {}
        failure: BaseException | None = None
        for task in tasks:
            error = task.exception()
            if error is None:
                done = task.result()
                written += done.files
                keys |= done.keys
            failure = failure or error
            self._done += 1
        undelivered = self._end_dead_letters(failed=failure is not None)
        failure = failure or undelivered
        if failure is None:
            return WrittenRows(written, keys)
        delete_files(open_storage(layout.storage), [one.location for one in written])
        if isinstance(failure, QuorateSourceError):
            raise PipelineError(str(failure)) from failure
        if isinstance(failure, OSError):
            raise TableUnavailable(f"data files at {layout.folder}: {failure}") from failure
        raise failure

    def _end_dead_letters(self, *, failed: bool) -> TableUnavailable | None:
        """Commit the dead letters of a batch, or take them back; return why that has failed."""
        if self._dead_letters is None:
            return None
        try:
            if failed:
                self._dead_letters.abandon()
            else:
                self._dead_letters.commit()
        except TableUnavailable as error:
            return error
        return None

    def cancel(self) -> None:
        """Cancel the work that is under way; another thread may call this."""
        self._cancelled.set()

    def fraction_done(self) -> float:
        """Return the fraction of the ranges of the present batch that is done."""
        return self._done / self._tasks if self._tasks else 0.0

    def _write(self, offsets: OffsetRange, layout: FileLayout) -> WrittenRows:
        plan = self._plan
        batches = self._read(plan, offsets)
        if plan.is_keyed:
            latest = LatestRows()
            keyed = KeyedRecords(plan, offsets, self._dead_letters)
            for batch in batches:
                latest.add(*keyed.rows(batch))
            files = write_files(layout, latest.rows())
            return WrittenRows(files, {offsets.topic_partition: latest.keys()})
        if plan.divides is not None:
            typed = TypedBatches(plan.divides, offsets.topic_partition)
            batches = (self._divided(typed, offsets, batch) for batch in batches)
        return WrittenRows(write_files(layout, batches))

    def _read(self, plan: RowPlan, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        for batch in plan.reader.read(InputPartition(offsets)):
            if self._cancelled.is_set():
                raise _Cancelled("the run is no longer in charge: what it was writing is dropped")
            yield batch

    def _divided(
        self, typed: TypedBatches, offsets: OffsetRange, records: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Return the records that can be decoded as rows, and write the others as dead letters."""
        rows, bad = typed.divided(records)
        assert self._dead_letters is not None
        self._dead_letters.add(offsets, records, bad)
        return rows
