"""JSON Schemas: what is one, and which ones take all documents of which."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.registry.schemas.json_compatibility import json_problems
from quorate.broker.registry.schemas.json_schema import parse_json
from quorate.common.schema_errors import InvalidSchema, SchemaTooComplex

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}


def has(closed: bool = False, required: tuple[str, ...] = (), **properties: object) -> Any:  # noqa: ANN401
    made: dict[str, object] = {"type": "object", "properties": properties}
    if closed:
        made["additionalProperties"] = False
    if required:
        made["required"] = list(required)
    return made


def tree(value: object) -> Any:  # noqa: ANN401 - a schema
    node = {"properties": {"value": value, "next": {"$ref": "#/definitions/node"}}}
    return {"$ref": "#/definitions/node", "definitions": {"node": node}}


INCLUDED = [
    # the reader's schema, the writer's
    (True, TEXT),
    ({}, TEXT),
    (TEXT, False),
    (NUMBER, WHOLE),
    ({"type": ["string", "null"]}, TEXT),
    ({"title": "a"}, {"title": "b"}),
    ({"maxLength": 5}, {"maxLength": 3}),
    (TEXT, {"type": "string", "pattern": "a"}),
    ({"minimum": 1}, {"exclusiveMinimum": 1}),
    ({"multipleOf": 2}, {"multipleOf": 6}),
    ({"enum": [1, 2]}, {"enum": [2]}),
    ({"enum": [1, "a"]}, {"const": 1.0}),
    ({"anyOf": [TEXT, WHOLE]}, TEXT),
    ({"anyOf": [WHOLE, TEXT]}, {"type": ["string", "integer"]}),
    ({"oneOf": [TEXT, WHOLE, {"type": "null"}]}, {"oneOf": [TEXT, WHOLE]}),
    (TEXT, {"allOf": [TEXT, {"maxLength": 3}]}),
    ({"not": TEXT}, {"not": {"type": ["string", "null"]}}),
    (has(a=TEXT), has(a=TEXT, b=TEXT)),
    (has(closed=True, a=TEXT, b=TEXT), has(closed=True, a=TEXT)),
    (has(a={}), has()),
    (has(a=TEXT), has(a=TEXT, required=("a",))),
    (has(a={"type": "string", "default": ""}, required=("a",)), has(a=TEXT)),
    ({"items": NUMBER}, {"items": WHOLE}),
    ({"minItems": 1}, {"minItems": 2, "uniqueItems": True}),
    ({"patternProperties": {"^x": TEXT}}, has(closed=True, x1=TEXT)),
    (tree(TEXT), tree(TEXT)),
    (tree(NUMBER), tree(WHOLE)),
    ({"maxLength": 1, "type": "integer"}, WHOLE),  # What is no text has no length.
]

NOT_INCLUDED = [
    (False, TEXT),
    (TEXT, True),
    (TEXT, {}),
    (WHOLE, NUMBER),
    (TEXT, {"type": ["string", "null"]}),
    ({"maxLength": 3}, {"maxLength": 5}),
    ({"maxLength": 3}, {}),
    ({"minLength": 3}, {}),
    ({"pattern": "a"}, {"pattern": "b"}),
    ({"maximum": 1}, {"maximum": 2}),
    ({"exclusiveMinimum": 1}, {"minimum": 1}),
    ({"multipleOf": 4}, {"multipleOf": 2}),
    ({"enum": [1]}, {"enum": [1, 2]}),
    ({"enum": [1]}, {"enum": [True]}),
    ({"const": "a"}, TEXT),
    ({"oneOf": [TEXT]}, {"oneOf": [TEXT, WHOLE]}),
    ({"allOf": [TEXT, {"maxLength": 3}]}, TEXT),
    ({"not": {"type": ["string", "null"]}}, {"not": TEXT}),
    ({"not": TEXT}, {}),
    ({"if": TEXT, "then": {"maxLength": 1}}, {}),
    (has(a=TEXT), has()),  # Data may have had the property, of any type.
    (has(closed=True, a=TEXT), has(closed=True, a=TEXT, b=TEXT)),
    (has(closed=True, a=TEXT), has(a=TEXT)),
    (has(a=TEXT, required=("a",)), has(a=TEXT)),
    (has(a=WHOLE), has(a=TEXT)),
    ({"items": WHOLE}, {"items": NUMBER}),
    ({"uniqueItems": True}, {}),
    ({"maxProperties": 1}, {}),
    ({"propertyNames": {"maxLength": 1}}, {}),
    ({"dependencies": {"a": ["b"]}}, {}),
    ({"contains": TEXT}, {}),
    ({"patternProperties": {"^x": TEXT}}, {}),
    (tree(TEXT), tree(WHOLE)),
]


def problems(reader: object, writer: object) -> list[str]:
    return json_problems(parse_json(json.dumps(reader)), parse_json(json.dumps(writer)))


@pytest.mark.parametrize(("reader", "writer"), INCLUDED)
def test_a_schema_takes_all_documents_of_another(reader: object, writer: object) -> None:
    assert problems(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer"), NOT_INCLUDED)
def test_a_schema_that_does_not_says_where(reader: object, writer: object) -> None:
    assert all(one.startswith("#") for one in problems(reader, writer))
    assert problems(reader, writer)


PARTS = st.sampled_from(
    [
        *({"type": one} for one in ("string", "integer", "number", "null", "boolean")),
        {"type": ["string", "null"]},
        {"enum": [1, "a", None]},
        {"const": 1},
        {"minimum": 1},
        {"maximum": 2},
        {"exclusiveMaximum": 2},
        {"multipleOf": 2},
        {"maxLength": 1},
        {"minLength": 1},
        True,
        False,
    ]
)
NAMES = st.sampled_from(["a", "b"])
SCHEMAS = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        st.builds(lambda one: {"properties": one}, st.dictionaries(NAMES, inner)),
        st.builds(
            lambda one, rest: {"properties": one, "additionalProperties": rest},
            st.dictionaries(NAMES, inner),
            inner,
        ),
        st.builds(lambda names: {"required": names}, st.lists(NAMES, unique=True)),
        st.builds(lambda one: {"items": one}, inner),
        st.builds(
            lambda one, rest: {"items": one, "additionalItems": rest},
            st.lists(inner, min_size=1),
            inner,
        ),
        st.builds(lambda one: {"anyOf": one}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda one: {"allOf": one}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda one: {"not": one}, inner),
        st.builds(lambda one: {"patternProperties": {"^a": one}}, inner),
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, 1.5, 2, 3, "", "a", "ab"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner)
    ),
    max_leaves=4,
)


@given(SCHEMAS, SCHEMAS, VALUES)
def test_what_counts_as_compatible_takes_every_document(
    reader: object, writer: object, document: object
) -> None:
    """jsonschema is asked about documents: one that the writer may write, the reader takes."""
    if not problems(reader, writer) and valid(writer, document):
        assert valid(reader, document)


def valid(schema: Any, document: object) -> bool:  # noqa: ANN401 - any schema
    return bool(jsonschema.Draft7Validator(schema).is_valid(document))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        '{"type": "nothing"}',
        '{"minLength": -1}',
        '{"minimum": NaN}',
        '{"minimum": 1e999}',
        '{"$ref": "#/definitions/missing"}',
        '{"$ref": "other.json"}',
        '{"$ref": 5}',
        '{"properties": {"a": {"$ref": "https://example.com/a.json"}}}',
        '{"not": ' * 2_000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_json(text)


def test_references_are_found_by_name_and_compared() -> None:
    outer = '{"properties":{"a":{"$ref":"other.json"}}}'
    old = parse_json(outer, {"other.json": '{"type":"integer"}'})
    wider = parse_json(outer, {"other.json": '{"type":"number"}'})
    assert json_problems(wider, old) == []
    assert json_problems(old, wider) != []


def test_the_text_keeps_its_order_unless_it_is_normalized() -> None:
    given_text = '{ "type": "object",  "properties": {"b": {}, "a": {}} }'
    assert parse_json(given_text).text == '{"type":"object","properties":{"b":{},"a":{}}}'
    assert (
        parse_json(given_text, normalize=True).text
        == '{"properties":{"a":{},"b":{}},"type":"object"}'
    )


def test_a_comparison_is_bounded() -> None:
    patterns: dict[str, object] = {f"^{number}": {} for number in range(500)}
    names: dict[str, object] = {f"n{number}": {} for number in range(500)}
    large = {"patternProperties": patterns, "properties": names}
    with pytest.raises(SchemaTooComplex):
        problems(large, {**large, "title": "other"})
