"""Writes the program that reads a writer's records into the columns of the reader's schema.

The rules are Avro's schema resolution: fields are matched by name or alias, what the reader does
not have is skipped, what the writer did not have gets its default, and numbers are widened. The
rules are applied once, when the program is written, and not for each record.

Records, enums and fixed types are matched by their place and not by their names, as most of Avro's
libraries do; names only decide between the branches of a union.
"""

from typing import Final, NoReturn

from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.avro_defaults import append_default
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
    BINARY,
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

_SKIPPED_AS: Final = {
    "int": (op.SKIP_VARINT, 0),
    "long": (op.SKIP_VARINT, 0),
    "enum": (op.SKIP_VARINT, 0),
    "float": (op.SKIP_FIXED, 4),
    "double": (op.SKIP_FIXED, 8),
    "boolean": (op.SKIP_FIXED, 1),
    "bytes": (op.SKIP_BYTES, 0),
    "string": (op.SKIP_BYTES, 0),
}


class Programs:
    """Writes the programs of all writers, which share the columns of one reader's schema."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.program = ProgramWriter()
        self.depths = 0
        """The deepest nesting of lists."""
        self._depth = 0
        self.program.null(shape)
        self.program.emit(op.END)
        self.nulls = 0
        """Where the program begins that makes all columns null."""

    def add(self, writer: AvroType) -> int:
        """Write the program for a writer's schema, and return where it begins.

        Raises:
            NotResolved: its values cannot be read by the reader's schema; names the field.
        """
        entry = self.program.here
        try:
            self._value(writer, self._shape)
        except NotResolved:
            self.program.forget(entry)
            raise
        self.program.emit(op.END)
        return entry

    # --- values -----------------------------------------------------------------------------------

    def _value(self, writer: AvroType, shape: Shape) -> None:
        if writer.kind == "union":
            self._branches(writer, shape)
        elif shape.kind == CHOICE:
            self._chosen(shape, self._member(writer, shape), writer)
        elif writer.kind == "null":
            if not shape.nullable:
                self._refuse(writer, shape)
            self.program.null(shape)
        elif shape.kind == RECORD:
            self._record(writer, shape)
        elif shape.kind in (LIST, MAP):
            if writer.kind != ("array" if shape.kind == LIST else "map"):
                self._refuse(writer, shape)
            self._items(writer, shape)
        else:
            self._leaf(writer, shape)

    def _branches(self, writer: AvroType, shape: Shape) -> None:
        """Write one piece of code for each branch of the writer's union."""
        at = self.program.constants([len(writer.branches), *(0 for _ in writer.branches)])
        self.program.emit(op.BRANCH, a=at)
        jumps, refused = [], []
        for number, branch in enumerate(writer.branches):
            entry = self.program.constant_list[at + 1 + number] = self.program.here
            try:
                self._value(branch, shape)
            except NotResolved as error:
                # Records may never have this branch.
                self.program.forget(entry)
                self.program.emit(op.FAIL)
                refused.append(error)
            jumps.append(self.program.emit(op.JUMP))
        if len(refused) == len(writer.branches):
            raise refused[0]
        for jump in jumps:
            self.program.patch(jump, a=self.program.here)

    def _member(self, writer: AvroType, shape: Shape) -> int:
        """Return the first member of a reader's union that fits: by type, else by widening."""
        for exactly in (True, False):
            for index, child in enumerate(shape.children):
                if exactly and not _is_same(writer, child.reader):
                    continue
                entry = self.program.here
                try:
                    self._value(writer, child)
                except NotResolved:
                    continue
                finally:
                    self.program.forget(entry)
                return index
        if writer.kind == "null" and shape.nullable:
            return -1
        self._refuse(writer, shape)

    def _chosen(self, shape: Shape, member: int, writer: AvroType) -> None:
        if member < 0:
            self.program.null(shape)
            return
        self.program.emit(op.VALID, shape.column)
        for index, child in enumerate(shape.children):
            if index == member:
                self._value(writer, child)
            else:
                self.program.null(child)

    def _record(self, writer: AvroType, shape: Shape) -> None:
        if writer.kind != "record":
            self._refuse(writer, shape)
        self.program.emit(op.VALID, shape.column)
        missing = dict(zip(shape.names, shape.children, strict=True))
        by_alias = {a: part.name for part in shape.reader.fields for a in part.aliases}
        for part in writer.fields:
            with self.program.inside(part.name):
                name = part.name if part.name in missing else by_alias.get(part.name, part.name)
                child = missing.pop(name, None)
                if child is None:
                    self._skip(part.type)
                else:
                    self._value(part.type, child)
        for part in shape.reader.fields:
            if part.name in missing:
                with self.program.inside(part.name):
                    if not part.has_default:
                        raise NotResolved(
                            f"field {self.program.path} has no default, and the writer's schema "
                            "does not have it"
                        )
                    append_default(self.program, part.type, missing[part.name], part.default)

    def _items(self, writer: AvroType, shape: Shape | None) -> None:
        """Write the loop over the items of an array or a map; without a shape it skips them."""
        assert writer.items is not None
        if writer.kind == "array" and writer.items.size_min == 0:
            raise NotResolved(
                f"field {self.program.path} is an array whose items may have no bytes: their "
                "number could not be bounded"
            )
        depth = self._depth
        self._depth += 1
        self.depths = max(self.depths, self._depth)
        self.program.emit(op.OPEN_LIST, a=depth)
        column = -1 if shape is None else shape.column
        begin = self.program.emit(op.NEXT_ITEM, column, depth)
        children = () if shape is None else shape.children
        if writer.kind == "map":
            if children:
                self._leaf(AvroType("string"), children[0])
            else:
                self.program.emit(op.SKIP_BYTES)
        if children:
            self._value(writer.items, children[-1])
        else:
            self._skip(writer.items)
        self.program.emit(op.JUMP, a=begin)
        self.program.patch(begin, b=self.program.here)
        self._depth = depth

    def _leaf(self, writer: AvroType, shape: Shape) -> None:
        kind, column, written = shape.kind, shape.column, writer.kind
        whole = written in ("int", "long")
        if kind == INT32 and written == "int":
            self.program.emit(op.INT, column)
        elif kind == INT64 and whole:
            factor = microseconds_factor(writer, shape.reader)
            self.program.emit(op.LONG, column, factor, int(written == "int"))
        elif kind == FLOAT32 and written == "float":
            self.program.emit(op.FLOAT, column)
        elif kind == FLOAT64 and written in ("float", "double"):
            self.program.emit(op.DOUBLE if written == "double" else op.FLOAT_AS_DOUBLE, column)
        elif kind in (FLOAT32, FLOAT64) and whole:
            self.program.emit(op.LONG_AS_FLOAT if kind == FLOAT32 else op.LONG_AS_DOUBLE, column)
        elif kind == BOOLEAN and written == "boolean":
            self.program.emit(op.BOOLEAN, column)
        elif kind == DECIMAL:
            self._decimal(writer, shape)
        elif kind in (TEXT, BINARY):
            self._bytes(writer, shape)
        else:
            self._refuse(writer, shape)

    def _bytes(self, writer: AvroType, shape: Shape) -> None:
        reader = shape.reader
        if reader.kind == "enum":
            if writer.kind != "enum":
                self._refuse(writer, shape)
            self.program.emit(op.ENUM, shape.column, self._symbols(writer, reader))
        elif reader.kind == "fixed":
            if writer.kind != "fixed" or writer.size != reader.size:
                self._refuse(writer, shape)
            self.program.emit(op.FIXED, shape.column, reader.size)
        elif writer.kind in ("string", "bytes"):
            self.program.emit(op.BYTES, shape.column, int(shape.kind == TEXT))
        else:
            self._refuse(writer, shape)

    def _symbols(self, writer: AvroType, reader: AvroType) -> int:
        numbers = [len(writer.symbols)]
        for symbol in writer.symbols:
            if symbol in reader.symbols:
                numbers += self.program.text(symbol.encode())
            elif reader.default_symbol is not None:
                numbers += self.program.text(reader.default_symbol.encode())
            else:
                numbers += (-1, -1)
        return self.program.constants(numbers)

    def _decimal(self, writer: AvroType, shape: Shape) -> None:
        reader = shape.reader
        scaled = writer.logical == "decimal"
        if writer.kind not in ("bytes", "fixed") or (scaled and writer.scale != reader.scale):
            self._refuse(writer, shape)
        bound = 10**reader.precision
        at = self.program.constants([signed(bound >> LONG_BITS), signed(bound & LOW_BITS)])
        self.program.emit(
            op.DECIMAL, shape.column, writer.size if writer.kind == "fixed" else -1, at
        )

    def _refuse(self, writer: AvroType, shape: Shape) -> NoReturn:
        where = f"field {self.program.path}" if self.program.path else "the value"
        raise NotResolved(f"{where} was written as {_says(writer)}, not as {_says(shape.reader)}")

    # --- what the reader does not have ------------------------------------------------------------

    def _skip(self, writer: AvroType) -> None:
        if writer.kind == "record":
            for part in writer.fields:
                self._skip(part.type)
        elif writer.kind == "union":
            at = self.program.constants([len(writer.branches), *(0 for _ in writer.branches)])
            self.program.emit(op.BRANCH, a=at)
            jumps = []
            for number, branch in enumerate(writer.branches):
                self.program.constant_list[at + 1 + number] = self.program.here
                self._skip(branch)
                jumps.append(self.program.emit(op.JUMP))
            for jump in jumps:
                self.program.patch(jump, a=self.program.here)
        elif writer.kind in ("array", "map"):
            self._items(writer, None)
        elif writer.kind == "fixed":
            self.program.emit(op.SKIP_FIXED, a=writer.size)
        elif writer.kind != "null":
            instruction, size = _SKIPPED_AS[writer.kind]
            self.program.emit(instruction, a=size)


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    same_name = not writer.names or not reader.names or not writer.names.isdisjoint(reader.names)
    return writer.kind == reader.kind and writer.logical == reader.logical and same_name


def _says(avro: AvroType) -> str:
    """Return a type in a few words."""
    if avro.kind == "union":
        return f"a union of {', '.join(map(_says, avro.branches))}"
    if avro.logical == "decimal":
        return f"decimal({avro.precision},{avro.scale})"
    if avro.kind == "fixed":
        return f"fixed({avro.size})"
    return avro.logical or avro.kind
