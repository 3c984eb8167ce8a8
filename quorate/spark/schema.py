"""The columns of the source, Kafka's own, and which of them a query wants.

Spark prunes no columns of a Python source by itself. ``.schema("offset bigint")`` reaches the
reader, so that is where a query says what it wants; everything else is then never decoded.
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
    """All columns in Kafka's order; ``headers`` is the last, and only there on request."""
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
        # Spark takes such rows for none at all, and counts 0.
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
