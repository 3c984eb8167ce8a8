"""The columns of rows that are written: those of Spark's own Kafka sink, and ``timestamp``.

What a query over this very source brings is taken, too, so that a topic is copied by reading and
writing it: ``offset`` and ``timestampType`` are passed over. Any other column is refused, as it
would be lost.
"""

import difflib
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from quorate.spark.errors import SchemaError
from quorate.spark.schema import HEADERS

_TEXT: Final = (StringType, CharType, VarcharType)
_TEXT_OR_BYTES: Final = (*_TEXT, BinaryType)
_TYPES: Final[Mapping[str, tuple[tuple[type[DataType], ...], str]]] = {
    "value": (_TEXT_OR_BYTES, "string or binary"),
    "key": (_TEXT_OR_BYTES, "string or binary"),
    HEADERS: ((ArrayType,), "array<struct<key:string,value:binary>>"),
    "topic": (_TEXT, "string"),
    "partition": ((IntegerType,), "int"),
    "timestamp": ((TimestampType,), "timestamp"),
}
PASSED_OVER: Final = frozenset({"offset", "timestampType"})
"""Of the source's columns: a log gives offsets itself, and says itself what its times are."""


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Refuse rows that cannot be written, or not as a whole.

    Args:
        schema: of the rows.
        topic: the option's topic; None: the rows say.

    Raises:
        SchemaError: names the column, and what it may be.
    """
    for field in schema.fields:
        if field.name in PASSED_OVER:
            continue
        if field.name not in _TYPES:
            nearest = difflib.get_close_matches(field.name, _TYPES, n=1, cutoff=0)[0]
            raise SchemaError(
                f"unknown column {field.name!r}: did you mean {nearest!r}? The columns that are "
                f"written are {', '.join(_TYPES)}; put others into the value, or drop them"
            )
        types, says = _TYPES[field.name]
        actual = field.dataType.simpleString()
        if not isinstance(field.dataType, types) or (field.name == HEADERS and actual != says):
            raise SchemaError(f"column {field.name!r} is {actual}, not {says}: cast it")
    if repeated := {name for name in schema.names if schema.names.count(name) > 1}:
        raise SchemaError(f"columns named more than once: {', '.join(sorted(repeated))}")
    if "value" not in schema.names:
        raise SchemaError("column 'value' is missing: it is what is written")
    if topic is None and "topic" not in schema.names:
        raise SchemaError("no topic: give option topic, or a column 'topic'")
