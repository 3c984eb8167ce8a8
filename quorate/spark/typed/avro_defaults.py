"""Writes the instructions that give a field its default, where the writer did not have it."""

import struct
from typing import Any

from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.avro_program import (
    LONG_BITS,
    LOW_BITS,
    NotResolved,
    ProgramWriter,
    microseconds_factor,
    signed,
)
from quorate.spark.typed.avro_schema import AvroType
from quorate.spark.typed.avro_shapes import (
    BOOLEAN,
    CHOICE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    LIST,
    MAP,
    RECORD,
    TEXT,
    Shape,
)

_NO_VALUE = (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error)


def append_default(
    program: ProgramWriter,
    reader: AvroType,
    shape: Shape,
    default: Any,  # noqa: ANN401 - JSON
) -> None:
    """Append the default of a field to its columns.

    Raises:
        NotResolved: the default is no value of the field's type.
    """
    entry = program.here
    try:
        _Constants(program).append(reader, shape, default)
    except _NO_VALUE as error:
        program.forget(entry)
        raise NotResolved(
            f"the default {default!r} of field {program.path} is no value of its type"
        ) from error


class _Constants:
    """Appends values of JSON. What is no value of the type raises one of `_NO_VALUE`."""

    def __init__(self, program: ProgramWriter) -> None:
        self._program = program

    def append(self, reader: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401 - JSON
        if reader.kind == "union":
            self._of_union(reader, shape, value)
        elif reader.kind == "null":
            if value is not None:
                raise ValueError
            self._program.null(shape)
        elif shape.kind == RECORD:
            self._program.emit(op.VALID, shape.column)
            for part, child in zip(reader.fields, shape.children, strict=True):
                self.append(part.type, child, value.get(part.name, part.default))
        elif shape.kind in (LIST, MAP):
            self._items(reader, shape, value)
        elif shape.kind in (FLOAT32, FLOAT64):
            self._floating(shape, value)
        elif shape.kind in (BOOLEAN, INT32, INT64):
            self._whole(reader, shape, value)
        else:
            self._bytes(reader, shape, value)

    def _of_union(self, reader: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401
        for branch in reader.branches:
            entry = self._program.here
            try:
                self._of_branch(branch, shape, value)
            except _NO_VALUE:
                self._program.forget(entry)
                continue
            return
        raise ValueError

    def _of_branch(self, branch: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401
        if branch.kind == "null" or shape.kind != CHOICE:
            self.append(branch, shape, value)
            return
        self._program.emit(op.VALID, shape.column)
        for child in shape.children:
            if child.reader == branch:
                self.append(branch, child, value)
            else:
                self._program.null(child)

    def _items(self, reader: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401 - JSON
        assert reader.items is not None
        if shape.kind == LIST:
            for item in list(value):
                self.append(reader.items, shape.children[0], item)
        else:
            keys, items = shape.children
            for key, item in dict(value).items():
                self._text(keys, key.encode())
                self.append(reader.items, items, item)
        self._program.emit(op.CLOSE_LIST, shape.column)

    def _whole(self, reader: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401 - JSON
        if not isinstance(value, int) or isinstance(value, bool) != (shape.kind == BOOLEAN):
            raise TypeError
        number = value * microseconds_factor(reader, reader)
        # This raises an error if it has no room.
        struct.pack("<i" if shape.kind == INT32 else "<q", number)
        self._program.emit(op.CONSTANT, shape.column, number)

    def _floating(self, shape: Shape, value: Any) -> None:  # noqa: ANN401 - JSON
        packed = struct.pack("<f" if shape.kind == FLOAT32 else "<d", float(value))
        (bits,) = struct.unpack("<q", packed.ljust(8, b"\0"))
        self._program.emit(op.CONSTANT, shape.column, bits)

    def _bytes(self, reader: AvroType, shape: Shape, value: Any) -> None:  # noqa: ANN401 - JSON
        if shape.kind == TEXT:
            self._text(shape, value.encode())
            return
        # Each character of the JSON text is a byte.
        data = value.encode("latin-1")
        if shape.kind != DECIMAL:
            self._text(shape, data)
            return
        number = int.from_bytes(data, "big", signed=True)
        if abs(number) >= 10**reader.precision:
            raise ValueError
        low, high = signed(number & LOW_BITS), number >> LONG_BITS
        self._program.emit(op.CONSTANT_DECIMAL, shape.column, low, high)

    def _text(self, shape: Shape, text: bytes) -> None:
        begin, end = self._program.text(text)
        self._program.emit(op.CONSTANT_BYTES, shape.column, begin, end)
