"""The typed columns of a query: which formats keys and values have, and what the query selects.

On the driver, `plan_columns` finds the schemas, `TypedColumns.schema` is what the query sees, and
`TypedColumns.select` checks what it asks for. The resulting `TypedSelection` travels to the
executors, where `quorate.spark.typed.typed_batches` decodes by it.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from quorate.spark.errors import SchemaError, ValueSchemaError
from quorate.spark.options.typed_options import BINARY, ColumnOptions, TypedOptions
from quorate.spark.schema import check_columns, source_schema
from quorate.spark.typed.find_format import find_format
from quorate.spark.typed.value_formats import ValueFormat

CORRUPT: Final = "_corrupt_"
"""The prefix of the column with the bytes that could not be decoded."""
OFFSET: Final = "offset"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The column ``key`` or ``value``, decoded."""

    name: str
    format: ValueFormat
    flat: bool = False
    """True if each field is a column of the query."""

    @property
    def corrupt_name(self) -> str:
        """The name of the column with the bytes of what is bad."""
        return CORRUPT + self.name

    @property
    def fields(self) -> list[StructField]:
        """The columns that the query sees."""
        type_ = self.format.spark_type
        if self.flat and isinstance(type_, StructType):
            return type_.fields
        return [StructField(self.name, type_)]


@dataclass(frozen=True, slots=True)
class TypedSelection:
    """What a query reads. It travels to the executors by pickle."""

    schema: StructType
    """The columns of the query, in its order."""
    columns: tuple[TypedColumn, ...]
    """The typed columns that it needs, each with only the fields that it selects."""
    permissive: bool

    @property
    def raw_schema(self) -> StructType:
        """The columns that are read from the log: bytes of typed columns, and the offset."""
        typed = {field.name for column in self.columns for field in column.fields}
        typed |= {column.corrupt_name for column in self.columns}
        raw = [StructField(column.name, BinaryType()) for column in self.columns]
        raw += [field for field in self.schema.fields if field.name not in typed]
        if OFFSET not in self.schema.names:
            raw.append(StructField(OFFSET, LongType()))
        return StructType(raw)


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """All columns of the source, with keys or values decoded."""

    columns: tuple[TypedColumn, ...]
    permissive: bool

    def schema(self, *, include_headers: bool) -> StructType:
        """Return all columns that the query may select.

        Raises:
            SchemaError: two columns would have the same name.
        """
        typed = {column.name: column for column in self.columns}
        fields: list[StructField] = []
        for plain in source_schema(include_headers=include_headers).fields:
            fields += typed[plain.name].fields if plain.name in typed else [plain]
        if self.permissive:
            fields += [StructField(column.corrupt_name, BinaryType()) for column in self.columns]
        names = [field.name.lower() for field in fields]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise SchemaError(
                f"the value has a field {repeated!r}, as there is a column already: read it with "
                "valueColumns=struct, or leave the field out by valueFields"
            )
        return StructType(fields)

    def select(self, wanted: StructType, *, include_headers: bool) -> TypedSelection:
        """Check the columns that a query selects.

        Raises:
            SchemaError: names the column, and the nearest one or the type that it has.
        """
        known = self.schema(include_headers=include_headers)
        for field in wanted.fields:
            if field.name in known.names:
                _check_part(field.name, field.dataType, known[field.name].dataType)
        plain = [
            StructField(field.name, known[field.name].dataType)
            if field.name in known.names
            else field
            for field in wanted.fields
        ]
        check_columns(StructType(plain), known)
        needed = (_needed(column, wanted) for column in self.columns)
        columns = tuple(column for column in needed if column is not None)
        return TypedSelection(wanted, columns, self.permissive)


def plan_columns(options: TypedOptions) -> TypedColumns | None:
    """Find the schemas of keys and values; return None if both are bytes.

    Raises:
        ValueSchemaError: a schema cannot be used.
        RegistryUnavailable: the registry gave no answer within the retries, or refused.
    """
    typed = [about for about in (options.key, options.value) if about.format != BINARY]
    if not typed:
        return None
    return TypedColumns(tuple(_planned(about, options) for about in typed), options.permissive)


def _planned(about: ColumnOptions, options: TypedOptions) -> TypedColumn:
    format_ = find_format(about, options.registry)
    if about.name != "value":
        return TypedColumn(about.name, format_)
    if (options.flatten or options.fields) and not isinstance(format_.spark_type, StructType):
        raise ValueSchemaError(
            f"values are of type {format_.spark_type.simpleString()}: they have no fields"
        )
    if options.fields:
        format_ = format_.selected(_with_fields(format_.spark_type, options.fields))
    return TypedColumn("value", format_, options.flatten)


def _with_fields(type_: DataType, names: tuple[str, ...]) -> StructType:
    assert isinstance(type_, StructType)
    if unknown := next((name for name in names if name not in type_.names), None):
        raise SchemaError(
            f"option valueFields: the value has no field {unknown!r}; its fields are "
            f"{', '.join(type_.names)}"
        )
    return StructType([type_[name] for name in names])


def _needed(column: TypedColumn, wanted: StructType) -> TypedColumn | None:
    """Return the column with only the wanted fields, or None if nothing of it is wanted."""
    names = {field.name for field in column.fields}
    chosen = [field for field in wanted.fields if field.name in names]
    if not chosen:
        return column if column.corrupt_name in wanted.names else None
    type_ = StructType(chosen) if column.flat else chosen[0].dataType
    selected = column.format.selected(type_)
    if selected.spark_type.simpleString() != type_.simpleString():
        raise SchemaError(
            f"column {column.name!r} cannot be read as {type_.simpleString()}: only fields of "
            f"records can be left out; it is {selected.spark_type.simpleString()}"
        )
    return TypedColumn(column.name, selected, column.flat)


def _check_part(where: str, wanted: DataType, known: DataType) -> None:
    """Refuse a type that is not the known one with some fields left out."""
    if isinstance(wanted, StructType) and isinstance(known, StructType):
        _check_fields(where, wanted, known)
    elif isinstance(wanted, ArrayType) and isinstance(known, ArrayType):
        _check_part(f"{where}[]", wanted.elementType, known.elementType)
    elif isinstance(wanted, MapType) and isinstance(known, MapType):
        _check_part(f"{where}[]", wanted.valueType, known.valueType)
    elif wanted.simpleString() != known.simpleString():
        raise SchemaError(
            f"column {where!r} is {known.simpleString()}, not {wanted.simpleString()}: select it "
            "as it is and cast it"
        )


def _check_fields(where: str, wanted: StructType, known: StructType) -> None:
    """Refuse a struct that has fields which the known one does not have."""
    for field in wanted.fields:
        if field.name not in known.names:
            raise SchemaError(
                f"column {where!r} has no field {field.name!r}; it has {', '.join(known.names)}"
            )
        _check_part(f"{where}.{field.name}", field.dataType, known[field.name].dataType)
