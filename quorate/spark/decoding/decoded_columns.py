"""The columns that the kernels decode from one group of batches.

The buffers are as large as the input allows. All columns of a group share one allocation. The
kernels fill it by address, and Arrow gets slices of the filled parts without a copy.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.decoding import decoding_kernels as kernels
from quorate.spark.decoding.record_batches import PlainRecords
from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.schema import HEADERS

_ALIGNMENT: Final = 64
_BITS: Final = {
    "key": kernels.KEY,
    "value": kernels.VALUE,
    "offset": kernels.OFFSET,
    "timestamp": kernels.TIMESTAMP,
    "timestampType": kernels.TIMESTAMP_TYPE,
    # The message about a malformed header names the record's offset.
    HEADERS: kernels.HEADERS | kernels.OFFSET,
}


def wanted_bits(names: list[str]) -> int:
    """Return the bits of what the kernels have to decode for these columns."""
    bits = 0
    for name in names:
        bits |= _BITS.get(name, 0)
    return bits


class _Arena:
    """One allocation that is divided into pieces."""

    def __init__(self) -> None:
        self._size = 0
        self._buffer: pa.Buffer | None = None

    def reserve(self, size: int) -> "_Piece":
        """Reserve ``size`` bytes. This is done before `allocate`."""
        piece = _Piece(self, self._size, size)
        self._size += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece

    def allocate(self) -> None:
        self._buffer = pa.allocate_buffer(self._size)

    @property
    def buffer(self) -> pa.Buffer:
        return self._buffer


class _Piece:
    """A part of an arena."""

    __slots__ = ("_arena", "_offset", "_size")

    def __init__(self, arena: _Arena, offset: int, size: int) -> None:
        self._arena = arena
        self._offset = offset
        self._size = size

    @property
    def address(self) -> int:
        """The address where the kernel may write; 0 if nothing was reserved."""
        return self._arena.buffer.address + self._offset if self._size else 0

    def filled(self, size: int) -> pa.Buffer:
        """Return the first ``size`` bytes."""
        return self._arena.buffer.slice(self._offset, size)

    def bitmap(self, rows: int) -> pa.Buffer:
        """Return the validity bitmap: a bit for each row, from a byte for each row."""
        return pa.py_buffer(
            np.packbits(np.frombuffer(self.filled(rows), np.uint8), bitorder="little")
        )


class _Binary:
    """The buffers of a binary or string column of Arrow that is being filled."""

    def __init__(self, arena: _Arena, rows_max: int, bytes_max: int, *, wanted: bool) -> None:
        self.ends = arena.reserve(4 * (rows_max + 1) if wanted else 0)
        self.data = arena.reserve(bytes_max if wanted else 0)
        self.valid = arena.reserve(rows_max if wanted else 0)

    def array(self, type_: pa.DataType, rows: int, nulls: int) -> pa.Array:
        used = int(np.frombuffer(self.ends.filled(4 * (rows + 1)), np.int32)[rows])
        buffers = [
            self.valid.bitmap(rows) if nulls else None,
            self.ends.filled(4 * (rows + 1)),
            self.data.filled(used),
        ]
        return pa.Array.from_buffers(type_, rows, buffers, nulls)


class DecodedColumns:
    """The wanted columns (`wanted_bits`) of the records of one group of batches."""

    def __init__(self, plain: PlainRecords, wanted: int) -> None:
        rows_max = int(plain.table[:, kernels.COUNT].sum())
        bytes_max = int((plain.table[:, kernels.END] - plain.table[:, kernels.BEGIN]).sum())
        self._plain = plain
        self._wanted = wanted
        arena = _Arena()
        self._offsets = arena.reserve(8 * rows_max if wanted & kernels.OFFSET else 0)
        self._timestamps = arena.reserve(8 * rows_max if wanted & kernels.TIMESTAMP else 0)
        self._types = arena.reserve(4 * rows_max if wanted & kernels.TIMESTAMP_TYPE else 0)
        self._key = _Binary(arena, rows_max, bytes_max, wanted=bool(wanted & kernels.KEY))
        self._value = _Binary(arena, rows_max, bytes_max, wanted=bool(wanted & kernels.VALUE))
        header_rows = rows_max if wanted & kernels.HEADERS else 0
        self._headers_begin = arena.reserve(8 * header_rows)
        self._headers_end = arena.reserve(8 * header_rows)
        arena.allocate()
        self._headers: _HeaderColumns | None = None
        self.report = np.zeros(kernels.REPORT_SIZE, dtype=np.int64)

    @property
    def rows(self) -> int:
        """The number of decoded records."""
        return int(self.report[kernels.ROWS])

    def decode(self, start: int, end: int) -> int:
        """Run the kernels over the records of [start, end), and return their status."""
        body, table = self._plain.body, self._plain.table
        status = load_kernel(kernels.DECODE_RECORDS)(
            body.address, table.ctypes.data, len(table), start, end, self._wanted,
            self._offsets.address, self._timestamps.address, self._types.address,
            self._key.ends.address, self._key.data.address, self._key.valid.address,
            self._value.ends.address, self._value.data.address, self._value.valid.address,
            self._headers_begin.address, self._headers_end.address, self.report.ctypes.data,
        )  # fmt: skip
        if status == kernels.OK and self._wanted & kernels.HEADERS:
            self._headers = _HeaderColumns(self.rows, self.report, body.size)
            status = self._headers.decode(
                body, self._headers_begin.address, self._headers_end.address
            )
        return status

    def failed_at(self, status: int) -> str:
        """Return a text that says where the kernels stopped."""
        record = int(self.report[kernels.FAILED_RECORD])
        if status == kernels.BAD_HEADER:
            offset = np.frombuffer(self._offsets.filled(8 * (record + 1)), np.int64)[record]
            return f"the record at offset {offset}"
        batch = int(self.report[kernels.FAILED_BATCH])
        base_offset = int(self._plain.table[batch, kernels.BASE_OFFSET])
        return f"record {record} of the batch at offset {base_offset}"

    def array(self, name: str, type_: pa.DataType) -> pa.Array:
        """Return the column of that name."""
        rows = self.rows
        if name == "key":
            return self._key.array(type_, rows, int(self.report[kernels.KEY_NULLS]))
        if name == "value":
            return self._value.array(type_, rows, int(self.report[kernels.VALUE_NULLS]))
        if name == HEADERS and self._headers is not None:
            return self._headers.array(type_)
        numbers = {
            "offset": self._offsets,
            "timestamp": self._timestamps,
            "timestampType": self._types,
        }[name]
        return pa.Array.from_buffers(
            type_, rows, [None, numbers.filled(rows * type_.bit_width // 8)], 0
        )


class _HeaderColumns:
    """The column ``array<struct<key string, value binary>>``; null for rows without headers."""

    def __init__(self, rows: int, report: npt.NDArray[np.int64], bytes_max: int) -> None:
        self._rows = rows
        self._headers = int(report[kernels.HEADER_ROWS])
        self._report = report
        arena = _Arena()
        self._list_ends = arena.reserve(4 * (rows + 1))
        self._row_valid = arena.reserve(rows)
        self._key = _Binary(arena, self._headers, bytes_max, wanted=True)
        self._value = _Binary(arena, self._headers, bytes_max, wanted=True)
        arena.allocate()

    def decode(self, body: pa.Buffer, headers_begin: int, headers_end: int) -> int:
        """Run the kernel, and return its status."""
        return load_kernel(kernels.DECODE_HEADERS)(
            body.address, headers_begin, headers_end, self._rows,
            self._list_ends.address, self._row_valid.address,
            self._key.ends.address, self._key.data.address,
            self._value.ends.address, self._value.data.address, self._value.valid.address,
            self._report.ctypes.data,
        )  # fmt: skip

    def array(self, type_: pa.ListType) -> pa.Array:
        struct = type_.value_type
        key = _readable(self._key.array(struct.field("key").type, self._headers, 0))
        value_nulls = int(self._report[kernels.HEADER_VALUE_NULLS])
        value = self._value.array(struct.field("value").type, self._headers, value_nulls)
        items = pa.Array.from_buffers(struct, self._headers, [None], 0, children=[key, value])
        buffers = [self._row_valid.bitmap(self._rows), self._list_ends.filled(4 * (self._rows + 1))]
        return pa.Array.from_buffers(type_, self._rows, buffers, children=[items])


def _readable(strings: pa.Array) -> pa.Array:
    """Return the strings, with bytes that are no UTF-8 replaced, as Kafka's own client does."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw = strings.view(pa.binary()).to_pylist()
        return pa.array([text.decode("utf-8", "replace") for text in raw], strings.type)
    return strings
