"""Avro schemas: what is one, its canonical text, and which schemas read data of which."""

import json
from typing import Any

import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.registry.schemas.avro_compatibility import avro_problems
from quorate.broker.registry.schemas.avro_schema import parse_avro
from quorate.common.schema_errors import InvalidSchema


def record(*fields: dict[str, Any], name: str = "R", **more: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, of: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": of, **more}


def enum(*symbols: str, **more: object) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


LIST = record(field("next", ["null", "R"]), field("value", "int"))
LONG_LIST = record(field("next", ["null", "R"]), field("value", "long"))
TEXT_LIST = record(field("next", ["null", "R"]), field("value", "string"))

READABLE = [
    # reader, writer
    ("int", "int"),
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("string", "bytes"),
    ("bytes", "string"),
    (["int", "null"], "int"),
    ("long", ["int", "long"]),
    (["null", "long"], ["int", "null"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (fixed(4), fixed(4)),
    (enum("A", "B"), enum("A")),
    (enum("A", default="A"), enum("A", "B")),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int"))),
    (record(field("a", "int"), field("b", "int", default=1)), record(field("a", "int"))),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    (record(field("a", "int"), name="New", aliases=["R"]), record(field("a", "int"))),
    (record(name="x.R"), record(name="y.R")),  # Names count without their namespaces.
    (LIST, LIST),
    (LONG_LIST, LIST),
]

UNREADABLE = [
    # reader, writer, what is said
    ("int", "long", "TYPE_MISMATCH"),
    ("int", "string", "TYPE_MISMATCH"),
    ("boolean", "int", "TYPE_MISMATCH"),
    ("null", "int", "TYPE_MISMATCH"),
    ("int", ["int", "null"], "MISSING_UNION_BRANCH"),
    (["int", "null"], "string", "MISSING_UNION_BRANCH"),
    (["null", "int"], ["null", "string"], "MISSING_UNION_BRANCH"),
    ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "TYPE_MISMATCH"),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "items"),
    (fixed(4), fixed(8), "FIXED_SIZE_MISMATCH"),
    (fixed(4, "G"), fixed(4), "NAME_MISMATCH"),
    (enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS at /: B"),
    (record(name="S"), record(), "NAME_MISMATCH"),
    (record(field("a", "int")), record(), "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0/"),
    (TEXT_LIST, LIST, "TYPE_MISMATCH at /fields/1/type/"),
    # The second branch is a list that refutes what the first comparison of lists assumed.
    ({"type": "array", "items": TEXT_LIST}, {"type": "array", "items": LIST}, "TYPE_MISMATCH"),
]


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_a_reader_reads_data_of_a_writer(reader: object, writer: object) -> None:
    assert avro_problems(*types(reader, writer)) == []


@pytest.mark.parametrize(("reader", "writer", "said"), UNREADABLE)
def test_a_reader_that_does_not_says_why(reader: object, writer: object, said: str) -> None:
    assert said in "; ".join(avro_problems(*types(reader, writer)))


def types(reader: object, writer: object) -> Any:  # noqa: ANN401 - a pair
    return parse_avro(json.dumps(reader)).type, parse_avro(json.dumps(writer)).type


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        '"nothing"',
        "5",
        "true",
        '{"type": "array"}',
        '["int", "int"]',
        '["int", ["null"]]',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "1", "fields": []}',
        '{"type": "record", "name": "R", "fields": {"a": 1}}',
        '{"type": "enum", "name": "E", "symbols": "AB"}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        json.dumps(record(field("a", "int"), field("a", "int"))),
        json.dumps(record(field("a", "int", default="x"))),
        json.dumps(record(field("a", ["null", "int"], default="x"))),
        json.dumps(record(field("key", "array", items="string"))),
        json.dumps([record(), record()]),
        '{"type": "array", "items": ' * 2_000,
        f"[{'9' * 5_000}]",
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_avro(text)


def test_the_canonical_text_has_one_order_and_no_more_than_needed() -> None:
    given = """
        {"fields": [{"default": null, "doc": "d", "type": ["null", {"type": "string"}],
          "name": "a", "order": "ascending"}, {"type": {"type": "int", "logicalType": "date"},
          "name": "b"}], "doc": "x", "name": "n.R", "type": "record"}"""
    assert parse_avro(given).text == (
        '{"type":"record","name":"R","namespace":"n","doc":"x","fields":['
        '{"name":"a","type":["null","string"],"doc":"d","default":null},'
        '{"name":"b","type":{"type":"int","logicalType":"date"}}]}'
    )


def test_normalized_text_has_full_names_and_sorted_properties() -> None:
    inner = {"type": "int", "zeta": 1, "alpha": 2}
    given = json.dumps(record(field("a", inner), field("r", ["null", "R"]), namespace="n"))
    assert parse_avro(given, normalize=True).text == (
        '{"type":"record","name":"n.R","fields":['
        '{"name":"a","type":{"type":"int","alpha":2,"zeta":1}},'
        '{"name":"r","type":["null","n.R"]}]}'
    )


def test_types_of_references_are_known_in_their_order() -> None:
    inner = json.dumps(record(field("x", "int"), name="a.Inner"))
    middle = json.dumps(record(field("inner", "a.Inner"), name="a.Middle"))
    outer = json.dumps(record(field("m", "a.Middle"), field("i", "a.Inner")))
    assert parse_avro(outer, [inner, middle]).text == outer.replace(" ", "")
    with pytest.raises(InvalidSchema):
        parse_avro(outer, [inner])


NAMES = st.sampled_from(["a", "b", "c"])


def schemas(depth: int = 3) -> st.SearchStrategy[Any]:
    """Schemas whose named types have different names, and which name none of them again."""
    leaves = st.one_of(
        st.sampled_from(["null", "int", "long", "string", "bytes"]),
        st.builds(lambda one: {"type": one, "logicalType": "x"}, st.sampled_from(["int", "long"])),
    )
    numbers = iter(range(10**9))

    def named(fields: dict[str, Any]) -> dict[str, Any]:
        inner = [field(name, of) for name, of in fields.items()]
        return record(*inner, name=f"N{next(numbers)}", namespace="n", doc="d")

    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda one: {"type": "array", "items": one}, inner),
            st.builds(lambda one: {"type": "map", "values": one}, inner),
            st.builds(named, st.dictionaries(NAMES, inner, max_size=3)),
        ),
        max_leaves=8,
    )


@given(schemas())
def test_canonical_text_means_the_same_and_stays(schema: Any) -> None:  # noqa: ANN401 - JSON
    given_text = json.dumps(schema)
    text = parse_avro(given_text).text
    assert parse_avro(text).text == text
    assert to_parsing_canonical_form(json.loads(text)) == to_parsing_canonical_form(schema)
    assert avro_problems(parse_avro(text).type, parse_avro(given_text).type) == []
