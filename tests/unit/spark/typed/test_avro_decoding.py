"""What Avro becomes in Spark's columns, type by type, and by other schemas than its writer's."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_program import NotResolved
from tests.support.avro_records import (
    Decoding,
    decoded,
    encode,
    encode_tree,
    field,
    long,
    record,
)

UTC = dt.UTC
MS = 1_700_000_000_123
TIME = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    ("schema", "value", "meaning", "type_"),
    [
        ("int", -(1 << 31), -(1 << 31), "int32"),
        ("long", (1 << 63) - 1, (1 << 63) - 1, "int64"),
        ("long", -(1 << 63), -(1 << 63), "int64"),
        ("float", 1.5, 1.5, "float"),
        ("double", -2.25, -2.25, "double"),
        ("boolean", True, True, "bool"),
        ("string", "zoë 🎉", "zoë 🎉", "string"),
        ("bytes", b"\xff\x00", b"\xff\x00", "binary"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc", "binary"),
        (ENUM, "B", "B", "string"),
        (logical("int", "date"), 1, dt.date(1970, 1, 2), "date32[day]"),
        (logical("long", "timestamp-millis"), MS, TIME, "timestamp[us, tz=UTC]"),
        (logical("long", "timestamp-micros"), MS * 1000, TIME, "timestamp[us, tz=UTC]"),
        (
            logical("long", "local-timestamp-millis"),
            MS,
            TIME.replace(tzinfo=None),
            "timestamp[us]",
        ),
        (logical("int", "time-millis"), 5, 5, "int32"),
        (logical("string", "uuid"), "x", "x", "string"),
        (logical("int", "decimal"), 5, 5, "int32"),
        (DECIMAL, (123456).to_bytes(3, "big"), Decimal("1234.56"), "decimal128(20, 2)"),
        (DECIMAL, b"\xff", Decimal("-0.01"), "decimal128(20, 2)"),
        (DECIMAL, b"\0" * 20 + b"\1", Decimal("0.01"), "decimal128(20, 2)"),
        (
            {**DECIMAL, "type": "fixed", "name": "D", "size": 9, "precision": 20},
            (-5).to_bytes(9, "big", signed=True),
            Decimal("-0.05"),
            "decimal128(20, 2)",
        ),
        ({"type": "array", "items": "int"}, [1, -2], [1, -2], None),
        ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], []], None, None),
        ({"type": "map", "values": "long"}, [("a", 1), ("b", 2)], None, None),
        (["null", "string"], (1, "x"), "x", "string"),
        (["null", "string"], (0, None), None, "string"),
        (["int", "long"], (0, 5), 5, "int64"),
        (["float", "double", "null"], (0, 0.5), 0.5, "double"),
        (["null", "int", "string"], (2, "x"), {"member0": None, "member1": "x"}, None),
        (["null", "int", "string"], (0, None), None, None),
    ],
)
def test_types(schema: Any, value: Any, meaning: Any, type_: str | None) -> None:  # noqa: ANN401
    whole = record(field("x", schema), field("after", "int"))
    decoding = Decoding(whole)
    bytes_ = encode_tree(whole, {"x": value, "after": 7})
    found, bad, _ = decoding.decode(whole, [bytes_])
    assert found.to_pylist() == [
        {"x": value if meaning is None and value[0] else meaning, "after": 7}
    ]
    assert not bad
    if type_ is not None:
        assert str(decoding.type.field("x").type) == type_


def test_a_value_need_not_be_a_record() -> None:
    assert decoded("string", b"\x02a", None) == ["a", None]
    assert decoded(["null", "long"], b"\x02\x02", b"\x00") == [1, None]


def test_records_in_lists_of_maps_of_records() -> None:
    inner = record(field("n", ["null", "int"]), field("tags", {"type": "array", "items": "string"}))
    schema = record(
        field("rows", {"type": "array", "items": {"type": "map", "values": ["null", inner]}}),
        name="Outer",
    )
    values = [
        {"rows": [{"a": {"n": 1, "tags": ["x", "yy"]}, "b": None}, {}]},
        {"rows": []},
        {"rows": [{"c": {"n": None, "tags": []}}]},
    ]
    found = decoded(schema, *(encode(schema, value) for value in values), None)
    assert found[3] is None
    assert [{"rows": [dict(row) for row in value["rows"]]} for value in found[:3]] == values


def test_blocks_of_items_with_their_size_in_bytes() -> None:
    schema = record(field("a", {"type": "array", "items": "int"}))
    # Two items in a block of two bytes, one in a block of its own, and the end.
    body = long(-2) + long(2) + long(1) + long(2) + long(1) + long(3) + long(0)
    assert decoded(schema, body) == [{"a": [1, 2, 3]}]


# --- schema resolution ----------------------------------------------------------------------------


def test_fields_are_found_by_name_and_alias_and_others_are_left_out() -> None:
    writer = record(
        field("old", "int"),
        field("gone", {"type": "array", "items": {"type": "map", "values": ["null", "double"]}}),
        field("nested", record(field("a", "string"), field("b", ENUM), name="N")),
        field("id", "long"),
    )
    reader = record(
        field("id", "long"),
        field("new", "int", aliases=["old"]),
        field("nested", record(field("b", ENUM), name="N")),
    )
    body = encode(
        writer, {"old": 1, "gone": [{"k": 1.5, "l": None}], "nested": {"a": "x", "b": "C"}, "id": 9}
    )
    assert decoded(writer, body, reader=reader) == [{"id": 9, "new": 1, "nested": {"b": "C"}}]


@pytest.mark.parametrize(
    ("type_", "default", "meaning"),
    [
        ("int", 5, 5),
        ("long", -6, -6),
        ("boolean", True, True),
        ("float", 1, 1.0),
        ("double", 2.5, 2.5),
        ("string", "zoë", "zoë"),
        ("bytes", "\u00ff", b"\xff"),
        (ENUM, "C", "C"),
        (DECIMAL, "\u00ff", Decimal("-0.01")),
        (logical("long", "timestamp-millis"), MS, TIME),
        (["null", "string"], None, None),
        (["string", "null"], "x", "x"),
        (["int", "string"], 3, {"member0": 3, "member1": None}),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": "string"}, ["a", "b"], ["a", "b"]),
        ({"type": "map", "values": "int"}, {"k": 1}, [("k", 1)]),
        (record(field("a", "int"), field("b", "string", default="q"), name="N"), {"a": 1}, None),
    ],
)
def test_defaults_of_fields_that_the_writer_did_not_have(
    type_: Any,  # noqa: ANN401
    default: Any,  # noqa: ANN401
    meaning: Any,  # noqa: ANN401
) -> None:
    reader = record(field("id", "int"), field("new", type_, default=default))
    writer = record(field("id", "int"))
    if isinstance(default, dict) and meaning is None:
        meaning = {"a": 1, "b": "q"}
    rows = decoded(writer, long(1), long(2), reader=reader)
    assert rows == [{"id": n, "new": meaning} for n in (1, 2)]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "meaning"),
    [
        ("int", "long", 5, 5),
        ("int", "float", 5, 5.0),
        ("int", "double", -5, -5.0),
        ("long", "float", 1 << 40, float(1 << 40)),
        ("long", "double", 1 << 40, float(1 << 40)),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "x", b"x"),
        ("bytes", "string", b"x", "x"),
        ("int", ["null", "long"], 5, 5),
        (["null", "int"], "long", (1, 5), 5),
        (["int", "string"], ["null", "string", "long"], (0, 5), {"member0": None, "member1": 5}),
        ("string", ["int", "string"], "x", {"member0": None, "member1": "x"}),
        (ENUM, {**ENUM, "symbols": ["C", "B"]}, "C", "C"),
        (ENUM, {**ENUM, "symbols": ["B", "Z"], "default": "Z"}, "C", "Z"),
        (
            logical("long", "timestamp-millis"),
            logical("long", "timestamp-micros"),
            MS,
            TIME,
        ),
        ("long", logical("long", "timestamp-micros"), MS * 1000, TIME),
        ({**DECIMAL, "precision": 10}, DECIMAL, b"\1", Decimal("0.01")),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1], [1.0]),
    ],
)
def test_values_are_widened(writer: Any, reader: Any, value: Any, meaning: Any) -> None:  # noqa: ANN401
    old, new = record(field("x", writer)), record(field("x", reader))
    assert decoded(old, encode_tree(old, {"x": value}), reader=new) == [{"x": meaning}]


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "int", "field x was written as string, not as int"),
        ("long", "int", "field x was written as long, not as int"),
        ("double", "float", "field x was written as double"),
        (DECIMAL, {**DECIMAL, "scale": 3}, r"decimal\(20,2\), not as decimal\(20,3\)"),
        ({"type": "array", "items": "null"}, {"type": "array", "items": "int"}, "may have no byt"),
        (["null", "string"], "int", "field x was written as null, not as int"),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "written as map"),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, "3"),
    ],
)
def test_schemas_that_do_not_fit(writer: Any, reader: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(NotResolved, match=message):
        decoded(record(field("x", writer)), reader=record(field("x", reader)))


def test_a_missing_field_without_a_default_is_named_with_its_path() -> None:
    inner = record(field("b", "int"), name="N")
    with pytest.raises(NotResolved, match=r"field a\.c has no default"):
        decoded(
            record(field("a", inner)),
            reader=record(field("a", record(field("c", "int"), name="N"))),
        )


def test_only_records_with_the_branch_that_does_not_fit_are_bad() -> None:
    writer = record(field("x", ["int", "string"]))
    decoding = Decoding(record(field("x", "long")))
    body = [encode_tree(writer, {"x": one}) for one in ((0, 1), (1, "s"), (0, 3))]
    found, bad, _ = decoding.decode(writer, body)
    assert found.to_pylist() == [{"x": 1}, None, {"x": 3}]
    assert bad == [1]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(field("next", ["null", "R"])), "the Avro type R contains itself"),
        ({"type": "array", "items": "Unknown"}, "does not define the type 'Unknown'"),
        (record(field("a", "int"), field("a", "int")), "two fields 'a'"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "lacks 'type'"),
        (["int", ["null"]], "which are no unions"),
        ({"type": "record", "fields": []}, "record has no name"),
        (5, "5 is no Avro type"),
        (record(field("a", ENUM), field("b", ENUM)), "defines E twice"),
        ({"type": "array", "items": "null"}, "an array of nulls has no column"),
    ],
)
def test_schemas_that_are_refused(schema: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueSchemaError, match=message):
        Decoding(schema)


def test_schemas_that_grow_when_names_are_resolved_are_bounded() -> None:
    schema: Any = "int"
    for depth in range(12):
        pieces: list[Any] = [field(f"f{n}", f"R{depth - 1}" if n else schema) for n in range(8)]
        schema = record(*(pieces if depth else pieces[:1]), name=f"R{depth}")
    with pytest.raises(ValueSchemaError, match="more than 20000 types"):
        Decoding(schema)


def test_schemas_are_not_nested_without_end() -> None:
    schema: Any = "int"
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueSchemaError, match="more than 64 levels"):
        Decoding(schema)
