"""Decodes Avro into Arrow columns of one reader's schema, whatever schemas wrote the records.

A batch of records is decoded by one call of the kernel, however many writers' schemas it mixes:
each record is read by the program of its own writer. The columns get room for what records of this
size usually need. If one gets full, what has been read becomes a chunk, and the rest gets more.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.arena import Arena
from quorate.spark.typed.avro_resolution import Programs
from quorate.spark.typed.avro_schema import AvroType
from quorate.spark.typed.avro_shapes import (
    BOOLEAN,
    CHOICE,
    LIST,
    MAP,
    NULL,
    RECORD,
    Column,
    Columns,
    Shape,
)
from quorate.spark.typed.value_formats import Fault

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]

_ARENA_BYTES_MAX: Final = 1 << 30
"""The most memory for the columns of a chunk; a record that needs more is bad."""
_COLUMN_BYTES_MAX: Final = (1 << 31) - 1
_ITEMS_PER_ROW: Final = 4
_ITEMS_MIN: Final = 1024
_TEXT_ROOM_MAX: Final = 4 << 20
_GROWTH: Final = 4


class AvroDecoder:
    """Decodes records into columns of one reader's schema."""

    def __init__(self, reader: AvroType) -> None:
        columns = Columns()
        self._shape = columns.shape_of(reader)
        self._columns = columns.table
        self._programs = Programs(self._shape)
        self._code = self._constants = np.empty(0, np.int64)
        self._texts = np.empty(0, np.uint8)
        self._pack_programs()

    def add_writer(self, writer: AvroType) -> int:
        """Return the entry of the records of a writer's schema, for `decode`.

        Raises:
            NotResolved: its records cannot be read by the reader's schema; names the field.
        """
        entry = self._programs.add(writer)
        self._pack_programs()
        return entry

    def decode(
        self,
        values: pa.Array,
        entries: Int64s,
        type_: pa.DataType,
        *,
        prefix: int = 0,
        stop_at_bad: bool = False,
    ) -> tuple[pa.Array, UInt8s, Fault | None]:
        """Decode a column of binary values.

        Args:
            values: the records, binary with ends of 32 bits.
            entries: how each one is read: an entry, `NULL_RECORD` or `BAD_RECORD`. It is changed.
            type_: the Arrow type of the result, which the reader's schema has as a Spark type.
            prefix: how many bytes before each record are left out. Each one has so many.
            stop_at_bad: end at the first bad record.

        Returns:
            The column; the status of each row (0: good), bad ones being null; and the first bad
            record, if it is to stop there.
        """
        rows = len(values)
        bad = np.zeros(rows, np.uint8)
        chunks: list[pa.Array] = []
        row, growth = 0, 1
        while row < rows:
            room = _Room(self._columns, values, row, growth, self._programs.program.largest_text)
            stopped, status, instruction = self._run(
                room, values, entries, prefix, row, bad, stop_at_bad=stop_at_bad
            )
            if stopped > row:
                chunks.append(room.array(self._shape, type_, stopped - row))
                row = stopped
                if status in (op.OK, op.FULL):
                    continue
            elif status == op.FULL and not room.is_largest:
                growth *= _GROWTH
                continue
            if stop_at_bad:
                return self._whole(chunks, type_), bad, self._fault(row, status, instruction)
            bad[row], entries[row] = status, op.NULL_RECORD
        return self._whole(chunks, type_), bad, None

    def _run(
        self, room: "_Room", values: pa.Array, entries: Int64s, prefix: int, row: int,
        bad: UInt8s, *, stop_at_bad: bool,
    ) -> tuple[int, int, int]:  # fmt: skip
        _, ends, data = values.buffers()
        report = np.zeros(op.REPORT_SIZE, np.int64)
        remaining = np.zeros(self._programs.depths + 1, np.int64)
        at = room.arena.address
        stopped = load_kernel(op.DECODE_AVRO)(
            0 if data is None else data.address, ends.address + 4 * values.offset,
            entries.ctypes.data, prefix, row, len(values),
            self._code.ctypes.data, self._constants.ctypes.data, self._texts.ctypes.data,
            at, at, at, at, at, room.table.ctypes.data, len(self._columns), remaining.ctypes.data,
            bad.ctypes.data, self._programs.nulls, int(stop_at_bad), report.ctypes.data,
        )  # fmt: skip
        return stopped, int(report[op.STATUS]), int(report[op.INSTRUCTION])

    def _fault(self, row: int, status: int, instruction: int) -> Fault:
        reason = op.FAULTS.get(status, "")
        path = (
            self._programs.program.paths[instruction]
            if status not in (op.BAD_ENTRY, op.TRAILING)
            else ""
        )
        return Fault(row, f"field {path}: {reason}" if path else reason)

    def _pack_programs(self) -> None:
        self._code = np.array(self._programs.program.code, np.int64).reshape(-1)
        self._constants = np.array(self._programs.program.constant_list or [0], np.int64)
        self._texts = np.frombuffer(bytes(self._programs.program.texts) or b"\0", np.uint8)

    @staticmethod
    def _whole(chunks: list[pa.Array], type_: pa.DataType) -> pa.Array:
        if len(chunks) == 1:
            return chunks[0]
        return pa.concat_arrays(chunks) if chunks else pa.array([], type_)


class _Room:
    """The room of all columns for the rows from ``row`` on."""

    def __init__(
        self, columns: list[Column], values: pa.Array, row: int, growth: int, largest_text: int
    ) -> None:
        rows = len(values) - row
        ends = np.frombuffer(values.buffers()[1], np.int32)
        size = int(ends[values.offset + len(values)] - ends[values.offset + row])
        items = growth * max(_ITEMS_MIN, _ITEMS_PER_ROW * rows)
        texts = growth * (
            size + min(largest_text * max(rows, items), _TEXT_ROOM_MAX) + largest_text
        )
        self.arena = Arena()
        self.table = np.zeros((len(columns), op.COLUMN_WIDTH), np.int64)
        for column, about in zip(self.table, columns, strict=True):
            most = rows if about.parent < 0 else items
            text_room = min(texts, _COLUMN_BYTES_MAX)
            width = text_room if about.width == op.VARIABLE else most * about.width
            column[op.DATA] = self.arena.reserve(width)
            column[op.ENDS] = self.arena.reserve(4 * (most + 1)) if about.has_ends else -1
            column[op.VALIDITY] = self.arena.reserve(most)
            column[op.ROWS_MAX], column[op.BYTES_MAX] = most, text_room
            column[op.WIDTH], column[op.PARENT] = about.width, about.parent
            column[op.ITEMS] = about.items
        self.is_largest = growth * _GROWTH * self.arena.size > _ARENA_BYTES_MAX
        self.arena.allocate()

    def array(self, shape: Shape, type_: pa.DataType, rows: int) -> pa.Array:
        """Return the column of a type with its first rows."""
        if shape.kind == NULL:
            return pa.nulls(rows, type_)
        column = self.table[shape.column]
        validity, nulls = self.arena.bitmap(int(column[op.VALIDITY]), rows)
        place, ends = int(column[op.DATA]), int(column[op.ENDS])
        if shape.kind in (RECORD, CHOICE):
            children = [
                self.array(child, type_.field(index).type, rows)
                for index, child in enumerate(shape.children)
            ]
            return pa.Array.from_buffers(type_, rows, [validity], nulls, children=children)
        if shape.kind in (LIST, MAP):
            items = self.arena.int32(ends, rows)
            child = self._items(shape, type_, items)
            buffers = [validity, self.arena.piece(ends, 4 * (rows + 1))]
            return pa.Array.from_buffers(type_, rows, buffers, nulls, children=[child])
        if ends >= 0:
            used = self.arena.int32(ends, rows)
            texts = [self.arena.piece(ends, 4 * (rows + 1)), self.arena.piece(place, used)]
            return pa.Array.from_buffers(type_, rows, [validity, *texts], nulls)
        if shape.kind == BOOLEAN:
            data = self.arena.bits(place, rows)
        else:
            data = self.arena.piece(place, rows * int(column[op.WIDTH]))
        return pa.Array.from_buffers(type_, rows, [validity, data], nulls)

    def _items(self, shape: Shape, type_: pa.DataType, items: int) -> pa.Array:
        if shape.kind == LIST:
            return self.array(shape.children[0], type_.value_type, items)
        key = self.array(shape.children[0], type_.key_type, items)
        value = self.array(shape.children[1], type_.item_type, items)
        pairs = pa.struct([type_.key_field, type_.item_field])
        return pa.Array.from_buffers(pairs, items, [None], 0, children=[key, value])
