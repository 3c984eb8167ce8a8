"""The buffers of an Arrow record batch of Spark, as the kernels take them.

Nothing but offsets is copied.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quorate.spark.errors import RowError
from quorate.spark.writing import writing_kernels as kernels

UInt8Array = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def _empty(dtype: type[np.generic]) -> npt.NDArray[Any]:
    array = np.empty(0, dtype)
    array.flags.writeable = False
    return array


NO_BYTES: Final[UInt8Array] = _empty(np.uint8)
NO_INT32: Final[Int32Array] = _empty(np.int32)
NO_INT64: Final[Int64Array] = _empty(np.int64)

MICROSECONDS_PER_MS: Final = 1000


class BinaryColumn(NamedTuple):
    """A column of strings or bytes: row r is ``data[ends[r]:ends[r + 1]]``.

    ``ends`` is empty if the rows have no such column.
    """

    ends: Int64Array = NO_INT64
    data: UInt8Array = NO_BYTES
    valid: UInt8Array = NO_BYTES
    """One byte per row, 0 for null; empty if no row is null."""


class HeaderColumns(NamedTuple):
    """The headers: row r has those from ``lists[r]`` to ``lists[r + 1]``.

    ``lists`` is empty if no row has any headers.
    """

    lists: Int64Array = NO_INT64
    key: BinaryColumn = BinaryColumn()
    value: BinaryColumn = BinaryColumn()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one Arrow record batch."""

    count: int
    value: BinaryColumn
    key: BinaryColumn
    headers: HeaderColumns
    partition: Int32Array
    partition_valid: UInt8Array
    timestamps_ms: Int64Array
    topics: tuple[str, ...] | None
    """The topics that the rows name; None if the option names the topic of all rows."""
    topic_of: Int32Array
    """The position of each row's topic in ``topics``."""
    present: int
    """The bits of `writing_kernels` that say which columns the rows have."""
    addresses: tuple[int, ...]
    """The addresses of timestamps, keys, values and headers, as `APPEND_RECORDS` takes them."""


def rows_of(batch: pa.RecordBatch, *, topic_column: bool, now_ms: int) -> Rows:
    """Return the rows of a batch whose schema was checked.

    Args:
        batch: the batch that Spark hands to a writer.
        topic_column: True if the column ``topic`` names the topic of each row.
        now_ms: the timestamp of rows without one.

    Raises:
        RowError: a row has no topic, or a header has no key.
    """
    names = batch.schema.names

    def column(name: str) -> pa.Array | None:
        return batch.column(names.index(name)) if name in names else None

    partition = column("partition")
    topics, topic_of = _topics(column("topic")) if topic_column else (None, NO_INT32)
    value = _binary(batch.column(names.index("value")))
    key = BinaryColumn() if (keys := column("key")) is None else _binary(keys)
    headers = _headers(column("headers"))
    partition_of = NO_INT32 if partition is None else _numbers(partition, pa.int32())
    partition_valid = NO_BYTES if partition is None else _valid(partition)
    timestamps_ms = _timestamps(column("timestamp"), batch.num_rows, now_ms)
    bits: dict[int, npt.NDArray[Any]] = {
        kernels.TOPICS: topic_of,
        kernels.PARTITIONS: partition_of,
        kernels.PARTITION_NULLS: partition_valid,
        kernels.KEYS: key.ends,
        kernels.KEY_NULLS: key.valid,
        kernels.VALUE_NULLS: value.valid,
        kernels.HEADERS: headers.lists,
        kernels.HEADER_VALUE_NULLS: headers.value.valid,
    }
    appended = (timestamps_ms, *key, *value, headers.lists, *headers.key[:2], *headers.value)
    return Rows(
        count=batch.num_rows,
        value=value,
        key=key,
        headers=headers,
        partition=partition_of,
        partition_valid=partition_valid,
        timestamps_ms=timestamps_ms,
        topics=topics,
        topic_of=topic_of,
        present=sum(bit for bit, array in bits.items() if len(array)),
        addresses=tuple(array.ctypes.data for array in appended),
    )


def _binary(column: pa.Array) -> BinaryColumn:
    """Return the buffers of a column of any of Arrow's string and binary types."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        offset_type: type[np.generic] = np.int32
    elif pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        offset_type = np.int64
    else:
        column, offset_type = column.cast(pa.large_binary()), np.int64
    _, offsets, data = column.buffers()
    begin, end = column.offset, column.offset + len(column) + 1
    if offsets is None or not len(column):
        ends = np.zeros(len(column) + 1, np.int64)
    else:
        ends = np.frombuffer(offsets, offset_type)[begin:end].astype(np.int64)
    ends.flags.writeable = False
    return BinaryColumn(ends, NO_BYTES if data is None else _bytes(data), _valid(column))


def _bytes(buffer: pa.Buffer) -> UInt8Array:
    if not buffer.size:
        return NO_BYTES
    array: UInt8Array = np.frombuffer(buffer, np.uint8)
    array.flags.writeable = False
    return array


def _valid(column: pa.Array) -> UInt8Array:
    if not column.null_count:
        return NO_BYTES
    valid: UInt8Array = column.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)
    return _read_only(np.ascontiguousarray(valid))


def _numbers(column: pa.Array, type_: pa.DataType) -> npt.NDArray[Any]:
    """Return the numbers of a column, with 0 for null."""
    filled = pc.fill_null(column.cast(type_), 0) if column.null_count else column.cast(type_)
    return _read_only(np.ascontiguousarray(filled.to_numpy(zero_copy_only=False)))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def _timestamps(column: pa.Array | None, rows: int, now_ms: int) -> Int64Array:
    """Return the timestamps in milliseconds, with the present time for null."""
    if column is None or column.null_count == len(column):
        return _read_only(np.full(rows, now_ms, np.int64))
    microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    times: Int64Array = _numbers(microseconds, pa.int64()) // MICROSECONDS_PER_MS
    if column.null_count:
        times = np.where(_valid(column), times, now_ms)
    return _read_only(times)


def _topics(column: pa.Array | None) -> tuple[tuple[str, ...], Int32Array]:
    if column is None or column.null_count:
        raise RowError(
            "a row has no topic: fill the column 'topic', or name one topic in option topic"
        )
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), _numbers(encoded.indices, pa.int32())


def _headers(column: pa.Array | None) -> HeaderColumns:
    if column is None or column.null_count == len(column):
        return HeaderColumns()
    if column.null_count:
        column = pc.fill_null(column, pa.scalar([], column.type))
    items = column.flatten()
    key, value = items.field("key"), items.field("value")
    if items.null_count or key.null_count:
        raise RowError("a header has no key: Kafka's headers are pairs of a key and a value")
    counts = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    lists = np.zeros(len(column) + 1, np.int64)
    np.cumsum(counts, out=lists[1:])
    return HeaderColumns(
        _read_only(lists),
        _binary(key),
        _binary(value),
    )
