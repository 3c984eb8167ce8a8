"""Values that are texts, and values that are JSON objects."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.json_format import JsonFormat
from quorate.spark.typed.json_types import json_type
from quorate.spark.typed.text_format import TextFormat
from tests.support.stub_registry import framed
from tests.support.value_decoding import decode

COLUMNS = (
    "id bigint, name string, amount double, at timestamp, day date, price decimal(10,2), "
    "ok boolean, tags array<string>, place struct<x: int, `the y`: float>, raw binary"
)
FORMAT = JsonFormat(json_type(COLUMNS))
EMPTY: dict[str, Any] = dict.fromkeys(json_type(COLUMNS).names)


def test_texts() -> None:
    found, bad, fault = decode(TextFormat(), [b"a", None, "zoë".encode(), b"\xff", b"", b"z\xc3"])
    assert found == ["a", None, "zoë", None, "", None]
    assert bad == [3, 5]
    assert fault is not None
    assert fault.reason == "its bytes are no UTF-8"


def test_json_of_every_type() -> None:
    value = {
        "id": -5, "name": "zoë", "amount": 1, "at": "2023-11-14T22:13:20Z", "day": "2023-11-14",
        "price": 1.25, "ok": True, "tags": ["a", None], "place": {"x": 1, "the y": 2.5},
        "raw": "ab", "unknown": [{"x": 1}],
    }  # fmt: skip
    found, bad, _ = decode(FORMAT, [json.dumps(value).encode(), b"{}", None])
    assert not bad
    assert found[0] == {
        "id": -5,
        "name": "zoë",
        "amount": 1.0,
        "at": dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC),
        "day": dt.date(2023, 11, 14),
        "price": Decimal("1.25"),
        "ok": True,
        "tags": ["a", None],
        "place": {"x": 1, "the y": 2.5},
        "raw": b"ab",
    }
    assert found[1:] == [EMPTY, None]


BAD = [
    (b"", "it is no JSON object"),
    (b"  ", "it is no JSON object"),
    # Arrow's reader crashes over this one.
    (b"null", "it is no JSON object"),
    (b"[1]", "it is no JSON object"),
    (b'"x"', "it is no JSON object"),
    (b"{", "it is no JSON object"),
    (b"}", "it is no JSON object"),
    (b"{}{}", "it is no JSON object"),
    (b"{} x", "it is no JSON object"),
    (b'{"id":1]', "it is no JSON object"),
    (b'{"name":"x}', "it is no JSON object"),
    (b'{"name":"x\\"}', "it is no JSON object"),
    (b'{"name":"x\\', "it is no JSON object"),
    (b'{"name":"a\nb"}', "it is no JSON object"),
    (b'{"zz":' + b"[" * 200 + b"]" * 200 + b"}", "more than 100 levels deep"),
    (b'{"zz":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "more than 100 levels deep"),
    (b'{"id":"1"}', "changed from number to string"),
    (b'{"id":1.5}', "couldn't parse:1.5"),
    (b'{"id":99999999999999999999}', "couldn't parse"),
    (b'{"id" 1}', "Missing a colon"),
    (b'{"id":1,}', "Missing a name"),
    (b'{"id":1,"id":2}', "specified twice"),
    (b'{"name":"\xff"}', "Invalid UTF8"),
    (b'{"day":"yesterday"}', "yesterday"),
    (b'{"price":1.255}', "requires scale 3"),
]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_json_that_is_bad_is_named_and_its_neighbours_are_read(value: bytes, reason: str) -> None:
    good = b' {"id":\n1}\r\n'
    found, bad, fault = decode(FORMAT, [good, value, None, good])
    assert bad == [1]
    assert found == [{**EMPTY, "id": 1}, None, None, {**EMPTY, "id": 1}]
    assert fault is not None
    assert reason in fault.reason


def test_two_bad_values_are_not_taken_for_two_good_ones() -> None:
    """Together they would be two objects on two lines."""
    found, bad, _ = decode(FORMAT, [b'{"id":1', b',"name":"x"}{"id":2}'])
    assert (found, bad) == ([None, None], [0, 1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40)))
def test_all_bad_values_are_found_wherever_they_are(rows: list[int]) -> None:
    values = [b'{"id":%d}' % n for n in range(41)]
    for row in rows:
        values[row] = b'{"id":true}'
    found, bad, _ = decode(JsonFormat(json_type("id bigint")), values)
    assert bad == sorted(set(rows))
    assert found == [None if n in rows else {"id": n} for n in range(41)]


def test_json_with_maps_is_read_record_by_record() -> None:
    about = JsonFormat(
        json_type("id int, m map<string, array<date>>, p decimal(4,1), t timestamp, f double")
    )
    good = b'{"id":1,"m":{"a":["2023-01-01",null],"b":null},"p":2.5,"t":"2023-01-01T00:00:00Z"}'
    values = [
        good, b'{"m":[]}', b'{"id":1.5}', b'{"id":true}', b'{"m":{"a":[1]}}', b'{"f":NaN}',
        b'{"f":1e999}', b'{"p":100000}', None, b'{"id":3000000000}', b"{}",
    ]  # fmt: skip
    found, bad, _ = decode(about, values)
    assert bad == [1, 2, 3, 4, 5, 6, 7, 9]
    assert found[0] == {
        "id": 1,
        "m": [("a", [dt.date(2023, 1, 1), None]), ("b", None)],
        "p": Decimal("2.5"),
        "t": dt.datetime(2023, 1, 1, tzinfo=dt.UTC),
        "f": None,
    }
    assert found[8] is None
    assert found[10] == dict.fromkeys(("id", "m", "p", "t", "f"))


def test_only_what_is_selected_is_decoded() -> None:
    about = JsonFormat(json_type(COLUMNS)).selected(json_type("name string"))
    found, bad, _ = decode(about, [b'{"id":"no number","name":"x"}'])
    assert (found, bad) == ([{"name": "x"}], [])


def test_json_behind_the_id_of_its_schema() -> None:
    about = JsonFormat(json_type("id int"), with_prefix=True)
    values = [framed(1, b'{"id":1}'), b'{"id":2}', b"{", framed(9, b""), None]
    found, bad, fault = decode(about, values)
    assert (found, bad) == ([{"id": 1}, None, None, None, None], [1, 2, 3])
    assert fault is not None
    assert "it begins with byte 123 and not with 0" in fault.reason


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "struct<a:bigint>"),
        ({"properties": {"a": {"type": ["null", "string"]}}}, "struct<a:string>"),
        (
            {
                "properties": {
                    "a": {"oneOf": [{"type": "null"}, {"type": "number"}]},
                    "b": {"enum": ["x", "y"]},
                    "c": {"type": "array", "items": {"type": "boolean"}},
                    "d": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "e": {"$ref": "#/$defs/point"},
                    "f": {"type": ["integer", "number"]},
                },
                "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
            },
            "struct<a:double,b:string,c:array<boolean>,d:map<string,bigint>,e:struct<x:double>,"
            "f:double>",
        ),
    ],
)
def test_json_schemas(schema: Any, type_: str) -> None:  # noqa: ANN401
    assert json_type(json.dumps(schema)).simpleString() == type_


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("id bigint", "struct<id:bigint>"),
        ("id: BIGINT NOT NULL, `a``b` Decimal", "struct<id:bigint,a`b:decimal(10,0)>"),
        (
            "m map<string,array<struct<a:int,b:decimal(5,2)>>>, e struct<>",
            "struct<m:map<string,array<struct<a:int,b:decimal(5,2)>>>,e:struct<>>",
        ),
    ],
)
def test_columns_of_ddl(text: str, type_: str) -> None:
    assert json_type(text).simpleString() == type_


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "names no column"),
        ("id", "is not understood at 'its end'"),
        ("id bigint name string", "is not understood at 'name'"),
        ("id bigint,", "is not understood at 'its end'"),
        ("id number", "is not understood at 'number'"),
        ("id array<int", "is not understood at 'its end'"),
        ("id ; int", "is not understood at '; int'"),
        ("id decimal(39,1)", r"decimal\(39,1\) is no type"),
        ("id decimal(a)", "is not understood at 'a'"),
        ("m map<int,int>", "the keys of a map are strings"),
        ("x " + "array<" * 100, "nested too deeply"),
        ("{", "is no JSON"),
        ('{"type":"string"}', "describes string, not an object"),
        ('{"type":"object"}', r"does not say the type of the value\.\*"),
        ('{"properties":{"a":{}}}', r"does not say one type of the value\.a"),
        ('{"properties":{"a":{"type":["string","integer"]}}}', "one type of the value.a"),
        ('{"properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]}}}', "one type"),
        ('{"properties":{"a":{"$ref":"#"}}}', "contains itself"),
        ('{"properties":{"a":{"$ref":"#/x"}}}', "has no '#/x'"),
        ('{"properties":{"a":{"$ref":"http://elsewhere"}}}', "has no 'http://elsewhere'"),
        ('{"properties":{"a":{"type":"file"}}}', "says that the value.a is 'file'"),
    ],
)
def test_schemas_that_are_refused(schema: str, message: str) -> None:
    with pytest.raises(ValueSchemaError, match=message):
        json_type(schema)
