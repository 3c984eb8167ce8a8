"""Keys and values in Avro: read by the reader's schema, each by the program of its own writer."""

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_schema import AvroType, parse_avro
from quorate.spark.typed.avro_shapes import spark_type
from quorate.spark.typed.registry_settings import AVRO, RegisteredSchema, RegistrySettings


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro by one reader's schema."""

    reader: AvroType
    registry: RegistrySettings | None = None
    """The registry that knows the writers' schemas. None: records have no prefix, and were written
    by the reader's schema, or by ``writer``."""
    writer: AvroType | None = None
    """The schema that records without a prefix were written by, once the reader's is a part of it.
    """

    @property
    def spark_type(self) -> DataType:
        """The type of the decoded column."""
        return spark_type(self.reader)

    def selected(self, wanted: DataType) -> "AvroFormat":
        """Return the format that decodes only the fields that ``wanted`` has."""
        writer = self.writer or self.reader
        return replace(self, reader=_selected(self.reader, wanted), writer=writer)


def avro_type(schema: RegisteredSchema) -> AvroType:
    """Return the type of a registered schema.

    Raises:
        ValueSchemaError: it is no schema of Avro, or one that cannot be read.
    """
    if schema.type.upper() != AVRO:
        raise ValueSchemaError(f"schema {schema.schema_id} is of type {schema.type}, not AVRO")
    return parse_avro(schema.text, [reference.text for reference in schema.references])


def _selected(avro: AvroType, wanted: DataType) -> AvroType:
    """Return the type with only the fields that the Spark type has, in its order."""
    if avro.kind == "union":
        return replace(avro, branches=_selected_branches(avro, wanted))
    if avro.kind == "record" and isinstance(wanted, StructType):
        by_name = {part.name: part for part in avro.fields}
        fields = tuple(
            replace(by_name[part.name], type=_selected(by_name[part.name].type, part.dataType))
            for part in wanted.fields
        )
        return replace(avro, fields=fields)
    if avro.items is not None and isinstance(wanted, ArrayType | MapType):
        inner: Any = wanted.elementType if isinstance(wanted, ArrayType) else wanted.valueType
        return replace(avro, items=_selected(avro.items, inner))
    return avro


def _selected_branches(avro: AvroType, wanted: DataType) -> tuple[AvroType, ...]:
    plain = [branch for branch in avro.branches if branch.kind != "null"]
    if len(plain) != 1:
        # The members of a struct are chosen by their numbers, so all of them stay.
        return avro.branches
    return tuple(
        branch if branch.kind == "null" else _selected(branch, wanted) for branch in avro.branches
    )
