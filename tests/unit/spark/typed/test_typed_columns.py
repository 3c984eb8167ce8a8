"""Which columns a query has, and what it may select of them."""

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from quorate.spark.errors import OptionError, SchemaError, ValueSchemaError
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.typed_options import TypedOptions, read_typed_options
from quorate.spark.source import QuorateDataSource
from quorate.spark.typed.typed_columns import TypedColumns, plan_columns
from tests.support.avro_records import field, record

INNER = record(field("a", "int"), field("b", "string"), name="N")
SCHEMA = record(
    field("id", "long"),
    field("inner", INNER),
    field("list", {"type": "array", "items": "N"}),
    field("map", {"type": "map", "values": "N"}),
    field("choice", ["int", "string"]),
)
PLAIN = "topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
STRUCT = (
    "struct<id:bigint,inner:struct<a:int,b:string>,list:array<struct<a:int,b:string>>,"
    "map:map<string,struct<a:int,b:string>>,choice:struct<member0:int,member1:string>>"
)


def options(**given: str) -> TypedOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return read_typed_options(GivenOptions(named, Scope.BATCH))


def planned(**given: str) -> TypedColumns:
    typed = {"valueFormat": "avro", "valueSchema": json.dumps(SCHEMA), **given}
    columns = plan_columns(options(**typed))
    assert columns is not None
    return columns


def simple(columns: TypedColumns) -> str:
    return columns.schema(include_headers=False).simpleString()


def test_the_value_is_a_struct_or_columns_of_its_own() -> None:
    assert simple(planned()) == f"struct<key:binary,value:{STRUCT},{PLAIN}>"
    assert simple(planned(keyFormat="string", valueFields="id")) == (
        f"struct<key:string,value:struct<id:bigint>,{PLAIN}>"
    )
    assert simple(planned(valueColumns="flatten", valueFields="inner,id")) == (
        f"struct<key:binary,inner:struct<a:int,b:string>,id:bigint,{PLAIN}>"
    )


def test_bytes_that_cannot_be_decoded_have_columns() -> None:
    columns = planned(mode="permissive", keyFormat="string", valueFields="id")
    assert simple(columns) == (
        f"struct<key:string,value:struct<id:bigint>,{PLAIN},_corrupt_key:binary,"
        "_corrupt_value:binary>"
    )


def test_without_a_format_nothing_changes() -> None:
    assert plan_columns(options()) is None


@pytest.mark.parametrize(
    "wanted",
    [
        StructType().add("id", LongType()),
        StructType().add("inner", StructType().add("b", StringType())),
        StructType().add("list", ArrayType(StructType().add("a", IntegerType()))),
        StructType().add("map", MapType(StringType(), StructType().add("b", StringType()))),
    ],
)
def test_parts_of_a_value_are_selected(wanted: StructType) -> None:
    selection = planned().select(StructType().add("value", wanted), include_headers=False)
    (column,) = selection.columns
    assert column.format.spark_type.simpleString() == wanted.simpleString()
    assert selection.raw_schema.simpleString() == "struct<value:binary,offset:bigint>"


def test_what_is_not_selected_is_not_decoded() -> None:
    columns = planned(keyFormat="string", mode="permissive")
    selection = columns.select(StructType().add("offset", LongType()), include_headers=False)
    assert not selection.columns
    corrupt = StructType().add("_corrupt_value", BinaryType())
    selection = columns.select(corrupt, include_headers=False)
    assert [column.name for column in selection.columns] == ["value"]
    flat = planned(valueColumns="flatten")
    selection = flat.select(StructType().add("id", LongType()), include_headers=False)
    assert selection.columns[0].format.spark_type.simpleString() == "struct<id:bigint>"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (StructType().add("value", BinaryType()), "column 'value' is struct<.*>, not binary"),
        (
            StructType().add("value", StructType().add("no", LongType())),
            "column 'value' has no field 'no'; it has id, inner, list, map, choice",
        ),
        (
            StructType().add("value", StructType().add("id", StringType())),
            r"column 'value\.id' is bigint, not string",
        ),
        (
            StructType().add(
                "value", StructType().add("list", ArrayType(StructType().add("c", LongType())))
            ),
            r"column 'value\.list\[\]' has no field 'c'",
        ),
        (
            StructType().add(
                "value", StructType().add("choice", StructType().add("member0", IntegerType()))
            ),
            "only fields of records can be left out",
        ),
        (StructType().add("values", LongType()), "unknown column 'values': did you mean 'value'"),
        (StructType().add("_corrupt_value", BinaryType()), "unknown column '_corrupt_value'"),
    ],
)
def test_selections_that_are_refused(wanted: StructType, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        planned().select(wanted, include_headers=False)


def test_fields_of_the_value_may_not_be_named_like_columns() -> None:
    schema = json.dumps(record(field("Offset", "long"), field("id", "int")))
    flat = planned(valueSchema=schema, valueColumns="flatten")
    with pytest.raises(SchemaError, match="has a field 'offset', as there is a column already"):
        simple(flat)
    assert "id:int" in simple(planned(valueSchema=schema, valueColumns="flatten", valueFields="id"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valueFormat": "avro"}, "needs a schema: give valueSchema, or schema.registry.url"),
        ({"keyFormat": "json"}, "needs a schema: give keySchema, or schema.registry.url"),
        ({"valueSchema": "x"}, "option valueSchema needs option valueFormat"),
        ({"valueFormat": "string", "valueSchema": "x"}, "needs option valueFormat, as avro"),
        ({"valueFormat": "json", "valueSchema": "a int", "valueMessage": "M"}, "only for valueFor"),
        ({"valueColumns": "flatten"}, "option valueColumns needs option valueFormat with a schema"),
        ({"valueFormat": "string", "valueFields": "a"}, "option valueFields needs option valueFor"),
        ({"schema__registry__ssl__ca__location": "x"}, "needs option schema.registry.url"),
        (
            {"schema__registry__url": "http://a", "schema__registry__ssl__key__location": "x"},
            "needs option schema.registry.ssl.certificate.location",
        ),
        (
            {"valueFormat": "avro", "schema__registry__url": "http://a", "subscribe": "a,b"},
            "about several topics: give valueSubject or valueSchema",
        ),
        (
            {"valueFormat": "avro", "schema__registry__url": "http://a", "subscribePattern": "a"},
            "about several topics",
        ),
    ],
)
def test_refused_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(**given)


def test_the_subject_is_that_of_the_topic() -> None:
    known: dict[str, Any] = {"valueFormat": "avro", "schema__registry__url": "http://a"}
    assert options(**known, subscribe="a").value.subject == "a-value"
    assert options(**known, assign='{"a":[0,1]}').value.subject == "a-value"
    assert options(**known, subscribe="a", valueSubject="s").value.subject == "s"
    write = {"valueFormat": "avro", "schema.registry.url": "http://a", "path": "orders"}
    assert read_typed_options(GivenOptions(write, Scope.WRITE)).value.subject == "orders-value"


def test_fields_that_are_not_there() -> None:
    with pytest.raises(SchemaError, match="no field 'ids'; its fields are id, inner, list, map"):
        planned(valueFields="ids")
    with pytest.raises(ValueSchemaError, match="values are of type int: they have no fields"):
        planned(valueSchema='"int"', valueColumns="flatten")


def test_readers_have_the_schema_that_spark_was_told_of() -> None:
    given = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "orders",
        "valueFormat": "avro",
        "valueSchema": json.dumps(SCHEMA),
    }
    source = QuorateDataSource(given)
    whole = source.schema()
    # Whatever has been registered since: the source asks no more.
    given["valueSchema"] = '"int"'
    source.reader(whole)
    source.streamReader(whole)
    with pytest.raises(SchemaError):
        QuorateDataSource(given).reader(whole)
