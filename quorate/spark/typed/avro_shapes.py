"""The columns that a reader's Avro schema becomes, as a tree, and the Spark types of these columns.

The types are those of Spark's own ``from_avro``, with these additions: local timestamps are
timestamps without a zone, and a ``uuid`` in 16 bytes is binary. A union of ``null`` and one type is
that type; one of int and long, or of float and double, is the wider one; any other union is a
struct with one field for each branch, ``member0``, ``member1`` and so on, of which one is not null.
"""

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_instructions import NOTHING, VARIABLE
from quorate.spark.typed.avro_schema import AvroType

INT32, INT64, FLOAT32, FLOAT64, BOOLEAN = "int32", "int64", "float32", "float64", "boolean"
TEXT, BINARY, DECIMAL, NULL = "text", "binary", "decimal", "null"
RECORD, CHOICE, LIST, MAP = "record", "choice", "list", "map"
_WIDTHS: Final = {INT32: 4, INT64: 8, FLOAT32: 4, FLOAT64: 8, BOOLEAN: 1, DECIMAL: 16}
_STORED_AS: Final = {
    "int": INT32,
    "long": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "boolean": BOOLEAN,
    "string": TEXT,
    "enum": TEXT,
    "bytes": BINARY,
    "fixed": BINARY,
    "null": NULL,
}
_PLAIN: Final[dict[str, type[DataType]]] = {
    INT32: IntegerType,
    INT64: LongType,
    FLOAT32: FloatType,
    FLOAT64: DoubleType,
    BOOLEAN: BooleanType,
    TEXT: StringType,
    BINARY: BinaryType,
    NULL: NullType,
}
_LOGICAL: Final[dict[str, type[DataType]]] = {
    "date": DateType,
    "timestamp-millis": TimestampType,
    "timestamp-micros": TimestampType,
    "local-timestamp-millis": TimestampNTZType,
    "local-timestamp-micros": TimestampNTZType,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of the reader, and the columns that hold its values."""

    kind: str
    column: int
    """The column in the table; -1 for a type that is always null."""
    reader: AvroType
    """The type without ``null``; of a `CHOICE`, the union."""
    nullable: bool
    names: tuple[str, ...] = ()
    """The names of the children of a record or a choice."""
    children: tuple["Shape", ...] = ()
    """The fields; of a list its items; of a map its keys and its values."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the bytes of a value, and the column of lists whose items these are."""

    width: int
    parent: int
    has_ends: bool
    items: int = -1


@dataclass
class Columns:
    """All columns of a schema. A column of lists stands before the columns of its items."""

    table: list[Column] = field(default_factory=list)

    def shape_of(self, avro: AvroType, parent: int = -1) -> Shape:
        """Add the columns of a type, and return its shape."""
        branches = [part for part in avro.branches if part.kind != "null"]
        nullable = len(branches) < len(avro.branches)
        if avro.kind != "union":
            return self._plain(avro, parent, nullable=False)
        if not branches:
            return self._plain(AvroType("null"), parent, nullable=True)
        if (wider := _wider(branches)) is not None:
            return self._plain(wider, parent, nullable=nullable)
        column = self._add(NOTHING, parent)
        children = tuple(self.shape_of(branch, parent) for branch in branches)
        names = tuple(f"member{index}" for index in range(len(branches)))
        return Shape(CHOICE, column, avro, nullable, names, children)

    def _plain(self, avro: AvroType, parent: int, *, nullable: bool) -> Shape:
        if avro.kind == "record":
            column = self._add(NOTHING, parent)
            names = tuple(part.name for part in avro.fields)
            children = tuple(self.shape_of(part.type, parent) for part in avro.fields)
            return Shape(RECORD, column, avro, nullable, names, children)
        if avro.kind in ("array", "map"):
            return self._repeated(avro, parent, nullable=nullable)
        kind = DECIMAL if avro.logical == "decimal" else _STORED_AS[avro.kind]
        if kind == NULL:
            return Shape(NULL, -1, avro, nullable=True)
        width = _WIDTHS.get(kind, VARIABLE)
        return Shape(kind, self._add(width, parent), avro, nullable)

    def _repeated(self, avro: AvroType, parent: int, *, nullable: bool) -> Shape:
        assert avro.items is not None
        column = self._add(NOTHING, parent, has_ends=True)
        items = len(self.table)
        self.table[column] = Column(NOTHING, parent, has_ends=True, items=items)
        if avro.kind == "array":
            item = self.shape_of(avro.items, column)
            if item.kind == NULL:
                raise ValueSchemaError("an array of nulls has no column that counts its items")
            return Shape(LIST, column, avro, nullable, (), (item,))
        key = self._plain(AvroType("string"), column, nullable=False)
        return Shape(MAP, column, avro, nullable, (), (key, self.shape_of(avro.items, column)))

    def _add(self, width: int, parent: int, *, has_ends: bool = False) -> int:
        self.table.append(Column(width, parent, has_ends or width == VARIABLE))
        return len(self.table) - 1


def spark_type(avro: AvroType) -> DataType:
    """Return the Spark type of an Avro type."""
    if avro.kind == "union":
        return _union_type(avro)
    if avro.kind == "record":
        return StructType([StructField(f.name, spark_type(f.type)) for f in avro.fields])
    if avro.items is not None:
        items = spark_type(avro.items)
        return ArrayType(items) if avro.kind == "array" else MapType(StringType(), items)
    if avro.logical == "decimal":
        return DecimalType(avro.precision, avro.scale)
    plain = _PLAIN[_STORED_AS[avro.kind]]
    return _LOGICAL.get(avro.logical, plain)()


def _union_type(avro: AvroType) -> DataType:
    branches = [part for part in avro.branches if part.kind != "null"]
    if not branches:
        return NullType()
    if (wider := _wider(branches)) is not None:
        return spark_type(wider)
    return StructType(
        [StructField(f"member{index}", spark_type(part)) for index, part in enumerate(branches)]
    )


def _wider(branches: list[AvroType]) -> AvroType | None:
    """Return the one type that holds the values of all branches, if there is one."""
    if len(branches) == 1:
        return branches[0]
    kinds = {part.kind for part in branches}
    if any(part.logical for part in branches):
        return None
    if kinds == {"int", "long"}:
        return AvroType("long")
    return AvroType("double") if kinds == {"float", "double"} else None
