"""Plans how the records of a topic become rows: which columns there are, and what is read for them.

A plan has the schemas that its registry had when it was made. Every record that was in the log by
then has a schema of that time or of an earlier one, so no field of it is missed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from quorate.common.configuration import ConfigError
from quorate.common.table_keys import TABLE_DEAD_LETTER_TOPIC, TABLE_VALUE_FORMAT
from quorate.spark.errors import SchemaError
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.option_table import INCLUDE_HEADERS
from quorate.spark.options.read_options import ReadOptions, read_options_of
from quorate.spark.options.typed_options import read_typed_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import source_schema
from quorate.spark.typed.text_format import TextFormat
from quorate.spark.typed.typed_columns import TypedColumns, TypedSelection, plan_columns
from quorate.tables.write_mode import KEY, RAW_KEY

WHOLE_RECORD: Final = ("key", "value", "offset", "timestamp", "headers")
"""The columns that a record needs to be written to another topic."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the records of a topic become rows."""

    schema: pa.Schema
    """The columns of the rows."""
    reader: QuorateReader
    """Reads rows, or whole records if ``divides`` is given."""
    divides: TypedSelection | None = None
    """How whole records become rows, apart from those that cannot be decoded."""
    is_keyed: bool = False
    """True if whole records are read, and their keys count (`WriteMode.UPSERT`)."""


def plan_rows(options: Mapping[str, str], *, divides: bool, is_keyed: bool = False) -> RowPlan:
    """Return a plan by the options of the format ``quorate``.

    Args:
        options: as Spark takes them.
        divides: whether records that cannot be decoded are told apart, as a whole.
        is_keyed: whether keys tell which rows are replaced.

    Raises:
        ConfigError: records can always be decoded, as nothing in them is typed.
        QuorateSourceError: an option is wrong, or a schema cannot be found or used.
    """
    given = GivenOptions(options, Scope.BATCH)
    reading, include_headers = read_options_of(given), given[INCLUDE_HEADERS]
    typed = plan_columns(read_typed_options(given))
    if is_keyed:
        return _keyed(reading, typed, include_headers=include_headers)
    if typed is None:
        if divides:
            raise ConfigError(
                f"{TABLE_DEAD_LETTER_TOPIC.name} needs {TABLE_VALUE_FORMAT.name}: bytes always fit"
            )
        columns = source_schema(include_headers=include_headers)
        return RowPlan(_arrow(columns), QuorateReader(reading, columns))
    columns = typed.schema(include_headers=include_headers)
    selection = typed.select(columns, include_headers=include_headers)
    if not divides:
        return RowPlan(_arrow(columns), QuorateReader(reading, columns, selection))
    return RowPlan(_arrow(columns), QuorateReader(reading, _whole(selection)), selection)


def _keyed(reading: ReadOptions, typed: TypedColumns | None, *, include_headers: bool) -> RowPlan:
    if typed is None:
        columns = source_schema(include_headers=include_headers)
        reader = QuorateReader(reading, source_schema(include_headers=True))
        return RowPlan(_arrow(columns), reader, is_keyed=True)
    columns = typed.schema(include_headers=include_headers)
    selection = typed.select(columns, include_headers=include_headers)
    schema, reader = _arrow(columns), QuorateReader(reading, _whole(selection))
    if RAW_KEY in map(str.lower, schema.names):
        raise SchemaError(
            f"the value has a field {RAW_KEY!r}, the name of the column with the bytes of the key: "
            "leave the field out by valueFields"
        )
    if not _has_bytes_of_key(typed):
        schema = schema.append(pa.field(RAW_KEY, pa.binary()))
    return RowPlan(schema, reader, selection, is_keyed=True)


def _has_bytes_of_key(typed: TypedColumns) -> bool:
    """Return whether the column ``key`` has what is in the log. A text that was decoded by a schema
    is not: its bytes begin with the id of the schema, or are a text of JSON."""
    formats = (column.format for column in typed.columns if column.name == KEY)
    return all(isinstance(one, TextFormat) for one in formats)


def _whole(selection: TypedSelection) -> StructType:
    """Return what is read for a selection, and the rest of the record."""
    raw = selection.raw_schema.fields
    known = {field.name for field in raw}
    whole = source_schema(include_headers=True)
    rest = [whole[name] for name in WHOLE_RECORD if name not in known]
    return StructType([*raw, *(StructField(one.name, one.dataType) for one in rest)])


def _arrow(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")
