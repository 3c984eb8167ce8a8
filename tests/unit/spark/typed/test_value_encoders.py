"""What a write makes of struct columns, read back by the decoders and by other libraries."""

import datetime as dt
import io
import json
import pickle
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from quorate.spark.errors import OptionError, RowError, SchemaError, ValueSchemaError
from quorate.spark.options.typed_options import ColumnOptions, TypedOptions
from quorate.spark.retries import RetryPolicy
from quorate.spark.typed.avro_encoding import encodes_columns
from quorate.spark.typed.avro_schema import parse_avro
from quorate.spark.typed.avro_shapes import spark_type
from quorate.spark.typed.ddl import parse_columns
from quorate.spark.typed.protobuf_format import protobuf_format
from quorate.spark.typed.protobuf_text import descriptors_of
from quorate.spark.typed.registry_settings import RegistrySettings
from quorate.spark.typed.value_encoders import ColumnEncoding, find_encodings
from tests.support.avro_records import decoded, field, record
from tests.support.stub_registry import StubRegistry, framed
from tests.unit.spark.typed.test_avro_fuzz import plain, records, values, with_names
from tests.unit.spark.typed.test_protobuf import FULL, TEXT

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def logical(kind: str, logical_type: str, **more: object) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def encoding(
    format_: str,
    schema: str | None,
    columns: StructType,
    registry: RegistrySettings | None = None,
    **more: Any,  # noqa: ANN401
) -> ColumnEncoding:
    about = ColumnOptions("value", format_, schema, **more)
    whole = StructType().add("value", columns)
    (found,) = find_encodings(TypedOptions(value=about, registry=registry), whole)
    # It travels to the executors.
    copy: ColumnEncoding = pickle.loads(pickle.dumps(found))
    return copy


def encoded(about: ColumnEncoding, rows: list[Any]) -> list[bytes | None]:
    column = pa.array(rows, to_arrow_type(about.type, timezone="UTC"))
    found: list[bytes | None] = about.encoder()(column).to_pylist()
    return found


def avro(schema: Mapping[str, Any], rows: list[Any]) -> list[bytes | None]:
    text = json.dumps(schema)
    type_ = spark_type(parse_avro(text))
    assert isinstance(type_, StructType)
    return encoded(encoding("avro", text, type_), rows)


TIME = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)


@pytest.mark.parametrize(
    ("schema", "some"),
    [
        ("int", [-(1 << 31), 5]),
        ("long", [-(1 << 63), (1 << 63) - 1]),
        ("float", [1.5]),
        ("double", [-2.25]),
        ("boolean", [True, False]),
        ("string", ["zoë", ""]),
        ("bytes", [b"\xff\x00"]),
        (ENUM, ["B", "A"]),
        ({"type": "fixed", "name": "F", "size": 3}, [b"abc"]),
        (logical("int", "date"), [dt.date(1960, 1, 2)]),
        (logical("long", "timestamp-millis"), [TIME, BEFORE]),
        (logical("long", "timestamp-micros"), [TIME, BEFORE]),
        (logical("long", "local-timestamp-millis"), [TIME.replace(tzinfo=None)]),
        (logical("string", "uuid"), [str(uuid.UUID(int=5))]),
        (logical("bytes", "decimal", precision=20, scale=2), [Decimal("1.28"), Decimal("-1.28")]),
        (logical("bytes", "decimal", precision=5, scale=2), [Decimal("0.00"), Decimal("-2.56")]),
        (
            logical("fixed", "decimal", name="D", size=9, precision=20, scale=2),
            [Decimal("1.28"), Decimal("-1.28")],
        ),
        (["null", "bytes"], [b"x", None]),
        (["string", "null"], ["x", None]),
        (["int", "long"], [5]),
        (["null", "int", "string"], [{"member0": 5, "member1": None}, None]),
        ({"type": "array", "items": ["null", "bytes"]}, [[b"a", None], []]),
        ({"type": "map", "values": logical("long", "timestamp-millis")}, [[("k", TIME)], []]),
        (["null", {"type": "array", "items": "int"}], [[1], None, []]),
        (["null", {"type": "map", "values": ["null", "int"]}], [[("k", None)], None]),
        (["null", record(field("a", "int"), name="N")], [{"a": 1}, None]),
        ({"type": "array", "items": record(field("a", ENUM), name="N")}, [[{"a": "B"}], []]),
    ],
)
def test_avro_of_every_type(schema: Any, some: list[Any]) -> None:  # noqa: ANN401
    whole = record(field("before", "int"), field("x", schema), field("after", "string"))
    rows = [None, *({"before": 1, "x": value, "after": "z"} for value in some), None]
    found = avro(whole, rows)
    assert found[0] is None
    assert decoded(whole, *found) == rows
    reading = fastavro.parse_schema(json.loads(json.dumps(whole)))
    for one in filter(None, found):
        found_there: Any = fastavro.schemaless_reader(io.BytesIO(one), reading, None)
        assert found_there["after"] == "z"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_avro_of_any_columns(data: st.DataObject) -> None:
    schema = with_names(data.draw(records()))
    written = data.draw(st.lists(st.none() | values(schema), max_size=5))
    rows = [value if value is None else plain(schema, value) for value in written]
    assert decoded(schema, *avro(schema, rows)) == rows


def test_which_schemas_are_encoded_by_columns() -> None:
    plain_ = record(field("a", ["null", logical("long", "timestamp-millis")]), field("b", "bytes"))
    assert encodes_columns(parse_avro(json.dumps(plain_)))
    decimal = logical("bytes", "decimal", precision=5, scale=2)
    for other in (decimal, ["null", "int", "string"], {"type": "fixed", "name": "F", "size": 1}):
        assert not encodes_columns(parse_avro(json.dumps(record(field("a", other)))))


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        (record(field("a", "int")), {"a": None}, "value.a is null in a row"),
        (
            record(field("a", ["null", record(field("b", "int"), name="N")])),
            {"a": {"b": None}},
            "value.a.b is null in a row",
        ),
        (
            record(field("a", {"type": "array", "items": "int"})),
            {"a": [None]},
            r"value.a\[\] is null",
        ),
        (record(field("a", ENUM)), {"a": "Z"}, "'Z'"),
        (record(field("a", ENUM), field("f", ["null", "int", "string"])), {"a": "Z"}, "'Z'"),
        (
            record(field("a", {"type": "fixed", "name": "F", "size": 3})),
            {"a": b"ab"},
            "has 2 bytes",
        ),
        (
            record(field("a", logical("fixed", "decimal", name="D", size=1, precision=3, scale=0))),
            {"a": Decimal(128)},
            "value.a is 128, which has no room in 1 bytes",
        ),
        (
            record(field("a", ["int", "string"])),
            {"a": {"member0": 1, "member1": "x"}},
            "has 2 members that are not null",
        ),
        (record(field("a", ["int", "string"])), {"a": None}, "value.a is null"),
    ],
)
def test_rows_that_do_not_fit(schema: dict[str, Any], row: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        avro(schema, [row])


def test_messages_of_every_type() -> None:
    type_ = protobuf_format(descriptors_of(TEXT), None, None).spark_type
    assert isinstance(type_, StructType)
    about = encoding("protobuf", TEXT, type_)
    found = encoded(about, [FULL, None])
    assert found[1] is None
    made: Any = message_factory.GetMessageClass(
        protobuf_format(descriptors_of(TEXT), None, None).descriptor()
    ).FromString(found[0] or b"")
    assert made.u64 == (1 << 64) - 1
    assert made.status == 1
    assert made.line.sku == "a"
    assert made.by_name["b"].count == 3
    assert made.at.ToMilliseconds() == 1_700_000_000_123
    assert made.took.ToMilliseconds() == 1500
    assert made.HasField("note")
    assert made.HasField("maybe")
    assert made.WhichOneof("paid") == "cash"


def test_json_of_every_type() -> None:
    columns = parse_columns(
        "id bigint, at timestamp, day date, price decimal(10,2), tags array<string>, "
        "m map<string,int>, place struct<x:int,y:int>, nothing string"
    )
    row = {
        "id": 5, "at": TIME, "day": dt.date(2023, 1, 2), "price": Decimal("1.25"),
        "tags": ["a", None], "m": [("k", 1)], "place": {"x": 1, "y": None}, "nothing": None,
    }  # fmt: skip
    about = encoding("json", columns.simpleString()[len("struct<") : -1], columns)
    found = encoded(about, [row, None])
    assert found[1] is None
    assert json.loads(found[0] or b"") == {
        "id": 5,
        "at": "2023-11-14T22:13:20.123000+00:00",
        "day": "2023-01-02",
        "price": "1.25",
        "tags": ["a", None],
        "m": {"k": 1},
        "place": {"x": 1},
    }


def test_numbers_are_widened_and_narrowed_without_loss() -> None:
    about = encoding("avro", json.dumps(record(field("a", "int"))), parse_columns("a bigint"))
    encode = about.encoder()
    column = pa.array([{"a": 5}], pa.struct([("a", pa.int64())]))
    assert encode(column).to_pylist() == [b"\x0a"]
    column = pa.array([{"a": 1 << 40}], pa.struct([("a", pa.int64())]))
    with pytest.raises(RowError, match="column 'value' does not fit its schema"):
        encode(column)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a int, b int", "has the field 'b', which its schema does not have"),
        ("b int", "has the field 'b'"),
        ("a string", "'value.a' is string, and its schema has int: cast it"),
        ("a struct<x:int>", "'value.a' is struct<x:int>, and its schema has int"),
    ],
)
def test_columns_that_do_not_fit(columns: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        encoding("avro", json.dumps(record(field("a", "int"))), parse_columns(columns))


def test_a_missing_field_is_named() -> None:
    schema = json.dumps(record(field("a", "int"), field("b", "int")))
    with pytest.raises(SchemaError, match="lacks the field 'b' of its schema"):
        encoding("avro", schema, parse_columns("a int"))


@pytest.fixture
def registry() -> Any:  # noqa: ANN401 - a generator
    with StubRegistry() as running:
        yield running


def settings_of(registry: StubRegistry) -> RegistrySettings:
    return RegistrySettings((registry.url,), retry_policy=RetryPolicy(0, 1))


def test_the_latest_schema_of_the_subject_is_written(registry: StubRegistry) -> None:
    registry.add("orders-value", record(field("a", "string")))
    latest = registry.add("orders-value", record(field("a", "int")))
    about = encoding(
        "avro", None, parse_columns("a int"), settings_of(registry), subject="orders-value"
    )
    assert encoded(about, [{"a": 1}, None]) == [framed(latest, b"\x02"), None]


def test_a_given_schema_is_registered(registry: StubRegistry) -> None:
    for format_, schema, row, body in (
        ("avro", json.dumps(record(field("a", "int"))), {"a": 1}, b"\x02"),
        ("protobuf", 'syntax="proto3"; message A { int32 a = 1; }', {"a": 1}, b"\0\x08\x01"),
        ("json", '{"properties":{"a":{"type":"integer"}}}', {"a": 1}, b'{"a": 1}'),
    ):
        about = encoding(
            format_, schema, parse_columns("a int"), settings_of(registry), subject=f"{format_}-v"
        )
        (schema_id,) = registry.subjects[f"{format_}-v"]
        assert registry.schemas[schema_id]["schema"] == schema
        assert encoded(about, [{"a": 1}]) == [framed(schema_id, body)]
        assert row == {"a": 1}


def test_the_path_of_a_message_is_written(registry: StubRegistry) -> None:
    text = 'syntax="proto3"; message A { message B { int32 a = 1; } } message C { int32 a = 1; }'
    for name, path in (("A.B", b"\x04\0\0"), ("C", b"\x02\x02")):
        about = encoding(
            "protobuf", text, parse_columns("a int"), settings_of(registry),
            subject="s", message=name,
        )  # fmt: skip
        assert encoded(about, [{"a": 1}]) == [framed(1, path + b"\x08\x01")]


def test_what_cannot_be_registered(registry: StubRegistry) -> None:
    with pytest.raises(OptionError, match="give valueSubject or topic"):
        encoding("avro", '"int"', parse_columns("a int"), settings_of(registry))
    with pytest.raises(OptionError, match="must be a JSON Schema to register it"):
        encoding("json", "a int", parse_columns("a int"), settings_of(registry), subject="s")
    registry.refuse = lambda path: (409, {"error_code": 409, "message": "incompatible"})
    with pytest.raises(ValueSchemaError, match="refuses subject 's': status 409: incompatible"):
        encoding(
            "avro", json.dumps(record(field("a", "int"))), parse_columns("a int"),
            settings_of(registry), subject="s",
        )  # fmt: skip
