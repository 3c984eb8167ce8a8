"""The writers of ``df.write`` and ``df.writeStream``: checked on the driver, run by Spark's tasks.

Writes are at least once: a task that Spark runs again writes its rows again, as with Spark's own
Kafka sink. Within a task nothing is written twice, whatever happens to leaders and connections.

The columns that are written are those of Spark's own Kafka sink, and ``timestamp``. Rows of a query
over this source are accepted, too, so that a topic can be copied by reading and writing it: the
columns ``offset`` and ``timestampType`` are ignored. Any other column is refused, because it would
be lost.
"""

import logging
from collections.abc import Container, Iterator
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
from quorate.spark.typed.value_encoders import ColumnEncoding, find_encodings
from quorate.spark.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
import difflib
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    TimestampType,
    VarcharType,
)

from quorate.spark.errors import SchemaError
from quorate.spark.schema import HEADERS

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuorateCommitMessage(WriterCommitMessage):
    """The commit message of one task: how many records it has written, all acknowledged."""

    records: int


class QuorateWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check the schema and the options of the write.

        Raises:
            OptionError: the query asks to overwrite a topic.
            SchemaError: rows of this schema cannot be written.
        """
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with .mode('append')")
        self._options = options
        self._encodings = find_encodings(options.typed, schema)
        check_sink_schema(schema, options.topic, {one.name for one in self._encodings})

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> QuorateCommitMessage:
        """Write the rows of one task; return when every in-sync replica has them."""
        return _write(self._options, self._encodings, iterator)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Warn that the records of other tasks stay in the log."""
        _warn_of_what_stays(messages)


class QuorateStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of one micro-batch after another."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check the schema and the options of the write.

        Raises:
            SchemaError: rows of this schema cannot be written.
        """
        self._options = options
        self._encodings = find_encodings(options.typed, schema)
        check_sink_schema(schema, options.topic, {one.name for one in self._encodings})

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> QuorateCommitMessage:
        """Write the rows of one task; return when every in-sync replica has them."""
        return _write(self._options, self._encodings, iterator)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """Warn that the records of other tasks stay in the log."""
        _warn_of_what_stays(messages)


def _write(
    options: WriteOptions,
    encodings: tuple[ColumnEncoding, ...],
    batches: "Iterator[pa.RecordBatch]",
) -> QuorateCommitMessage:
    # gRPC and numba must not be loaded before Spark forks its workers.
    from quorate.spark.writing.write_task import write_rows

    if encodings:
        from quorate.spark.typed.encoded_batches import encoded_batches

        batches = encoded_batches(batches, encodings)
    context = TaskContext.get()
    return QuorateCommitMessage(
        write_rows(options, batches, task=context.partitionId() if context else 0)
    )


def _warn_of_what_stays(messages: "list[WriterCommitMessage | None]") -> None:
    records = sum(
        message.records for message in messages if isinstance(message, QuorateCommitMessage)
    )
    _logger.warning("the write failed; %d records of other tasks are written and stay", records)


_TEXT: Final = (StringType, CharType, VarcharType)
_TEXT_OR_BYTES: Final = (*_TEXT, BinaryType)
_TYPES: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "value": (_TEXT_OR_BYTES, "string or binary"),
    "key": (_TEXT_OR_BYTES, "string or binary"),
    HEADERS: ((ArrayType,), "array<struct<key:string,value:binary>>"),
    "topic": (_TEXT, "string"),
    "partition": ((IntegerType,), "int"),
    "timestamp": ((TimestampType,), "timestamp"),
}
PASSED_OVER: Final = frozenset({"offset", "timestampType"})
"""Columns of the source that are ignored: the log assigns offsets and timestamp types itself."""


def check_sink_schema(schema: StructType, topic: str | None, encoded: Container[str] = ()) -> None:
    """Refuse a schema whose rows cannot be written, or only in part.

    Args:
        schema: the schema of the rows.
        topic: the topic that the option names; None if the column ``topic`` names it.
        encoded: the columns that are encoded, and were checked against their schemas.

    Raises:
        SchemaError: names the column, and which types it may have.
    """
    for field in schema.fields:
        if field.name in PASSED_OVER or field.name in encoded:
            continue
        if field.name not in _TYPES:
            nearest = difflib.get_close_matches(field.name, _TYPES, n=1, cutoff=0)[0]
            raise SchemaError(
                f"unknown column {field.name!r}: did you mean {nearest!r}? The columns that are "
                f"written are {', '.join(_TYPES)}; put others into the value, or drop them"
            )
        types, says = _TYPES[field.name]
        actual = field.dataType.simpleString()
        if not isinstance(field.dataType, types) or (field.name == HEADERS and actual != says):
            raise SchemaError(f"column {field.name!r} is {actual}, not {says}: cast it")
    if repeated := {name for name in schema.names if schema.names.count(name) > 1}:
        raise SchemaError(f"columns named more than once: {', '.join(sorted(repeated))}")
    if "value" not in schema.names:
        raise SchemaError("column 'value' is missing: it is what is written")
    if topic is None and "topic" not in schema.names:
        raise SchemaError("no topic: give option topic, or a column 'topic'")
