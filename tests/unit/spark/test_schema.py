"""The columns, and which selections of them are accepted."""

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from quorate.spark.errors import SchemaError
from quorate.spark.schema import check_projection, source_schema


def test_the_schema_is_kafkas() -> None:
    assert source_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    with_headers = source_schema(include_headers=True)
    assert with_headers["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )


def test_any_selection_in_any_order_is_accepted() -> None:
    whole = source_schema(include_headers=True)
    check_projection(whole, include_headers=True)
    check_projection(StructType([whole["topic"], whole["key"]]), include_headers=False)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType([]), "the schema has no column: name one, such as 'offset bigint'"),
        (
            StructType().add("offsets", LongType()),
            "unknown column 'offsets': did you mean 'offset'",
        ),
        (StructType().add("value", StringType()), "column 'value' is binary, not string"),
        (StructType([source_schema(include_headers=True)["headers"]]), "includeHeaders=true"),
        (
            StructType().add("offset", LongType()).add("offset", LongType()),
            "once: offset",
        ),
    ],
)
def test_refused_schemas(schema: StructType, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_projection(schema, include_headers=False)
