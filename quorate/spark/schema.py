"""The columns of the source, which are those of Spark's Kafka source, and the choice of a query.

Spark itself prunes no columns of a Python source. But ``.schema("offset bigint")`` reaches the
reader, so a query chooses its columns there, and all other columns are never decoded.
"""

import difflib

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.errors import SchemaError

HEADERS = "headers"

_HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: _HEADERS_TYPE,
}


def source_schema(*, include_headers: bool) -> StructType:
    """Return all columns in Kafka's order. ``headers`` is the last one, and only on request."""
    return StructType(
        [
            StructField(name, data_type)
            for name, data_type in _COLUMNS.items()
            if name != HEADERS or include_headers
        ]
    )


def check_projection(schema: StructType, *, include_headers: bool) -> None:
    """Refuse a schema that is no selection of the source's columns.

    Raises:
        SchemaError: names the column, and the nearest one or the type it has.
    """
    if HEADERS in schema.names and not include_headers:
        raise SchemaError("column 'headers' needs option includeHeaders=true")
    check_columns(schema, source_schema(include_headers=include_headers))


def check_columns(schema: StructType, known: StructType) -> None:
    """Refuse a schema that is no selection of the known columns.

    Raises:
        SchemaError: names the column, and the nearest one or the type it has.
    """
    if not schema.fields:
        # Spark would count 0 rows of such a schema.
        raise SchemaError("the schema has no column: name one, such as 'offset bigint'")
    for field in schema.fields:
        if field.name not in known.names:
            nearest = difflib.get_close_matches(field.name, known.names, n=1, cutoff=0)[0]
            raise SchemaError(
                f"unknown column {field.name!r}: did you mean {nearest!r}? "
                f"The columns are {', '.join(known.names)}"
            )
        wanted, actual = field.dataType.simpleString(), known[field.name].dataType.simpleString()
        if wanted != actual:
            raise SchemaError(
                f"column {field.name!r} is {actual}, not {wanted}: select it as it is and cast it"
            )
    if repeated := {name for name in schema.names if schema.names.count(name) > 1}:
        raise SchemaError(f"columns named more than once: {', '.join(sorted(repeated))}")
