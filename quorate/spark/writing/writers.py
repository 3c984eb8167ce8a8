"""What Spark asks for by ``df.write`` and ``df.writeStream``: checked on the driver, run by tasks.

At least once: a task that Spark runs again writes its rows again, as with Spark's own Kafka sink.
Within a task nothing is written twice, whatever happens to leaders and connections.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quorate.spark.errors import OptionError
from quorate.spark.writing.sink_schema import check_sink_schema
from quorate.spark.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written; every record is acknowledged."""

    records: int


class QuorateWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """
        Raises:
            OptionError, SchemaError: what is asked for cannot be written.
        """
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with .mode('append')")
        check_sink_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """The rows of one task; returns when every in-sync replica has them."""
        return _write(self._options, iterator)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Nothing that was written is taken back."""
        _warn_of_what_stays(messages)


class QuorateStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of one micro-batch after the other."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """
        Raises:
            SchemaError: what is asked for cannot be written.
        """
        check_sink_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """The rows of one task; returns when every in-sync replica has them."""
        return _write(self._options, iterator)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """Nothing that was written is taken back."""
        _warn_of_what_stays(messages)


def _write(options: WriteOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    # gRPC and numba must not be loaded before Spark forks its workers.
    from quorate.spark.writing.write_task import write_rows

    context = TaskContext.get()
    return Written(write_rows(options, batches, task=context.partitionId() if context else 0))


def _warn_of_what_stays(messages: "list[WriterCommitMessage | None]") -> None:
    records = sum(message.records for message in messages if isinstance(message, Written))
    _logger.warning("the write failed; %d records of other tasks are written and stay", records)
