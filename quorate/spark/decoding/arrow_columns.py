"""Plain records into Arrow batches of exactly the schema that Spark expects.

Only the columns of the schema are decoded. The output buffers are allocated here, as large as the
kernel's bounds demand, and handed to Arrow without a copy.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.decoding import record_kernel as kernel
from quorate.spark.decoding.record_batches import Bytes, PlainRecords, plain_records
from quorate.spark.decoding.record_kernel import BASE_OFFSET, COUNT, Int64Array
from quorate.spark.errors import CorruptBatch
from quorate.spark.ranges import TopicPartition
from quorate.spark.schema import HEADERS

_FAULTS = {
    kernel.BAD_LENGTH: "its length runs past the batch",
    kernel.BAD_DELTA: "its timestamp or offset delta is malformed",
    kernel.BAD_KEY: "its key runs past the record",
    kernel.BAD_VALUE: "its value runs past the record",
    kernel.BAD_HEADERS: "its headers run past the record",
    kernel.BAD_HEADER: "a header runs past the record",
    kernel.TRAILING_BYTES: "bytes follow the last record",
}


class ArrowDecoder:
    """Decodes one range of one partition; ``next_offset`` is where the next frame has to start."""

    def __init__(
        self, topic_partition: TopicPartition, start: int, end: int, schema: pa.Schema
    ) -> None:
        self.next_offset = start
        self._end = end
        self._topic_partition = topic_partition
        self._schema = schema
        self._constants: dict[str, pa.Array] = {}

    def decode(self, frame: Bytes) -> Iterator[pa.RecordBatch]:
        """The frame's records of [next_offset, end), about 1 MiB of them in each batch.

        ``next_offset`` moves behind the frame's batches as they are handed out.

        Raises:
            CorruptBatch: names topic, partition and offset.
        """
        try:
            for plain in plain_records(frame, self.next_offset, self._end):
                batch = self._decode_group(plain)
                self.next_offset = plain.next_offset
                if batch.num_rows:
                    yield batch
        except CorruptBatch as error:
            raise CorruptBatch(
                f"corrupt data in topic {self._topic_partition.topic} partition "
                f"{self._topic_partition.partition} at or after offset {self.next_offset}: {error}"
            ) from None

    def _decode_group(self, plain: PlainRecords) -> pa.RecordBatch:
        wanted = frozenset(self._schema.names)
        columns = Columns(plain, wanted)
        status = columns.decode(plain, self.next_offset, self._end)
        if status != kernel.OK:
            raise CorruptBatch(columns.fault(status, plain))
        rows = int(columns.report[kernel.ROWS])
        arrays = [self._array(field, columns, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, columns: "Columns", rows: int) -> pa.Array:
        name = field.name
        if name == "topic":
            return self._constant(name, self._topic_partition.topic, field.type, rows)
        if name == "partition":
            return self._constant(name, self._topic_partition.partition, field.type, rows)
        return columns.array(name, field.type, rows)

    def _constant(self, name: str, value: object, type_: pa.DataType, rows: int) -> pa.Array:
        """``rows`` times the same value: a slice of the longest such array so far."""
        longest = self._constants.get(name)
        if longest is None or len(longest) < rows:
            longest = self._constants[name] = pa.repeat(pa.scalar(value, type_), rows)
        return longest.slice(0, rows)


class _Binary:
    """Arrow's binary or string column in the making."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.ends = np.empty(rows_max + 1, dtype=np.int32)
        self.ends[0] = 0
        self.data = np.empty(bytes_max, dtype=np.uint8)
        self.valid = np.empty(rows_max, dtype=np.uint8)

    def array(self, type_: pa.DataType, rows: int, nulls: int) -> pa.Array:
        used = int(self.ends[rows])
        buffers = [
            _validity(self.valid, rows) if nulls else None,
            pa.py_buffer(self.ends[: rows + 1]),
            pa.py_buffer(self.data[:used]),
        ]
        return pa.Array.from_buffers(type_, rows, buffers, nulls)


class Columns:
    """The output of the kernels for one group of batches, as large as its input allows."""

    def __init__(self, plain: PlainRecords, wanted: frozenset[str]) -> None:
        rows_max = int(plain.table[:, COUNT].sum())
        bytes_max = len(plain.body)
        self._wanted = wanted
        self._offsets = np.empty(rows_max, dtype=np.int64)
        self._timestamps = np.empty(rows_max, dtype=np.int64)
        self._timestamp_types = np.empty(rows_max, dtype=np.int32)
        self._key = _Binary(*((rows_max, bytes_max) if "key" in wanted else (0, 0)))
        self._value = _Binary(*((rows_max, bytes_max) if "value" in wanted else (0, 0)))
        header_rows = rows_max if HEADERS in wanted else 0
        self._headers_begin = np.empty(header_rows, dtype=np.int64)
        self._headers_end = np.empty(header_rows, dtype=np.int64)
        self._headers = _HeaderColumns(0, 0, 0)
        self.report: Int64Array = np.zeros(kernel.REPORT_SIZE, dtype=np.int64)

    def decode(self, plain: PlainRecords, start: int, end: int) -> int:
        """Run the kernels; the status."""
        status: int = kernel.decode_records(
            plain.body, plain.table, start, end,
            "key" in self._wanted, "value" in self._wanted, HEADERS in self._wanted,
            self._offsets, self._timestamps, self._timestamp_types,
            self._key.ends, self._key.data, self._key.valid,
            self._value.ends, self._value.data, self._value.valid,
            self._headers_begin, self._headers_end, self.report,
        )  # fmt: skip
        if status == kernel.OK and HEADERS in self._wanted:
            rows, headers = int(self.report[kernel.ROWS]), int(self.report[kernel.HEADERS])
            self._headers = _HeaderColumns(rows, headers, len(plain.body))
            status = self._headers.decode(
                plain.body, self._headers_begin, self._headers_end, rows, self.report
            )
        return status

    def fault(self, status: int, plain: PlainRecords) -> str:
        """Where and why the kernels stopped."""
        record = int(self.report[kernel.FAILED_RECORD])
        if status == kernel.BAD_HEADER:
            return f"the record at offset {int(self._offsets[record])}: {_FAULTS[status]}"
        base_offset = int(plain.table[int(self.report[kernel.FAILED_BATCH]), BASE_OFFSET])
        return f"record {record} of the batch at offset {base_offset}: {_FAULTS[status]}"

    def array(self, name: str, type_: pa.DataType, rows: int) -> pa.Array:
        if name == "key":
            return self._key.array(type_, rows, int(self.report[kernel.KEY_NULLS]))
        if name == "value":
            return self._value.array(type_, rows, int(self.report[kernel.VALUE_NULLS]))
        if name == HEADERS:
            return self._headers.array(type_, rows, self.report)
        numbers: dict[str, npt.NDArray[np.int64] | npt.NDArray[np.int32]] = {
            "offset": self._offsets,
            "timestamp": self._timestamps,
            "timestampType": self._timestamp_types,
        }
        return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(numbers[name][:rows])], 0)


class _HeaderColumns:
    """``array<struct<key string, value binary>>`` in the making; null where a row has none."""

    def __init__(self, rows: int, headers: int, bytes_max: int) -> None:
        self._headers = headers
        self._list_ends = np.zeros(rows + 1, dtype=np.int32)
        self._row_valid = np.zeros(rows, dtype=np.uint8)
        self._key = _Binary(headers, bytes_max)
        self._value = _Binary(headers, bytes_max)

    def decode(
        self,
        body: npt.NDArray[np.uint8],
        headers_begin: Int64Array,
        headers_end: Int64Array,
        rows: int,
        report: Int64Array,
    ) -> int:
        status: int = kernel.decode_headers(
            body, headers_begin, headers_end, rows,
            self._list_ends, self._row_valid, self._key.ends, self._key.data,
            self._value.ends, self._value.data, self._value.valid, report,
        )  # fmt: skip
        return status

    def array(self, type_: pa.ListType, rows: int, report: Int64Array) -> pa.Array:
        struct = type_.value_type
        key = _readable(self._key.array(struct.field("key").type, self._headers, 0))
        value_nulls = int(report[kernel.HEADER_VALUE_NULLS])
        value = self._value.array(struct.field("value").type, self._headers, value_nulls)
        items = pa.Array.from_buffers(struct, self._headers, [None], 0, children=[key, value])
        buffers = [_validity(self._row_valid, rows), pa.py_buffer(self._list_ends)]
        return pa.Array.from_buffers(type_, rows, buffers, children=[items])


def _readable(strings: pa.Array) -> pa.Array:
    """The same strings; bytes that are no UTF-8 are replaced, as Kafka's own client does."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw = strings.view(pa.binary()).to_pylist()
        return pa.array([text.decode("utf-8", "replace") for text in raw], strings.type)
    return strings


def _validity(valid: npt.NDArray[np.uint8], rows: int) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid[:rows], bitorder="little"))
