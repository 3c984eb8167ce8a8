"""Bytes that are no record of their schema: what is said of them, and that nothing else suffers."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.spark.typed import avro_decoder
from tests.support.avro_records import Decoding, encode, encode_tree, field, long, record

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NARROW = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
TOO_LONG = b"\xff" * 10 + b"\x01"


@pytest.mark.parametrize(
    ("schema", "body", "reason"),
    [
        ("long", b"", "field x: its number is malformed"),
        ("long", b"\x80", "its number is malformed"),
        ("long", TOO_LONG, "its number is malformed"),
        ("int", long(1 << 31), "its number is no int of 32 bits"),
        ("int", long(-(1 << 31) - 1), "its number is no int of 32 bits"),
        ("string", long(5) + b"abc", "it runs past the end of the record"),
        ("string", long(-1), "it runs past the end of the record"),
        ("string", long((1 << 63) - 1) + b"abc", "it runs past the end of the record"),
        ("bytes", TOO_LONG, "its number is malformed"),
        ("float", b"abc", "it runs past the end of the record"),
        ("double", b"abcdefg", "it runs past the end of the record"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "it runs past the end of the record"),
        ("boolean", b"", "it runs past the end of the record"),
        ("boolean", b"\x02", "its byte is neither 0 nor 1"),
        (["null", "int"], long(2), "the union has no branch of that number"),
        (["null", "int"], long(-1), "the union has no branch of that number"),
        (ENUM, long(2), "the enum has no symbol of that number"),
        (ENUM, long(-1), "the enum has no symbol of that number"),
        (NARROW, long(2) + (1000).to_bytes(2, "big"), "more digits than its type"),
        (NARROW, long(2) + (-1000).to_bytes(2, "big", signed=True), "more digits than its type"),
        (NARROW, long(0), "more digits than its type"),
        (WIDE, long(16) + (10**38).to_bytes(16, "big"), "more digits than its type"),
        (WIDE, long(16) + (1 << 127).to_bytes(16, "big"), "more digits than its type"),
        (WIDE, long(17) + b"\x01" + bytes(16), "more digits than its type"),
        (TIME, long((1 << 63) - 1), "its time is out of range"),
        (TIME, long(-(1 << 63)), "its time is out of range"),
        ("int", long(1) + b"\x00", "bytes follow the end of the record"),
        ({"type": "array", "items": "int"}, long(1 << 60), "its count of items is malformed"),
        ({"type": "array", "items": "int"}, long(-(1 << 63)), "malformed"),
        ({"type": "array", "items": "int"}, long(-1) + long(-1) + long(1) + b"\0", "malformed"),
        ({"type": "array", "items": "int"}, long(1) + long(1), "its number is malformed"),
        ({"type": "map", "values": "int"}, long(1) + long(1) + b"\xff", "its bytes are no UTF-8"),
    ],
)
def test_the_first_bad_record_is_named_with_its_field(
    schema: Any,  # noqa: ANN401
    body: bytes,
    reason: str,
) -> None:
    whole = record(field("x", schema))
    decoding = Decoding(whole)
    found, _, fault = decoding.decode(whole, [None, body], stop_at_bad=True)
    assert found.to_pylist() == [None]
    assert fault is not None
    assert fault.row == 1
    assert reason in fault.reason
    # And if it is to go on, the neighbours are whole.
    found, bad, fault = decoding.decode(whole, [None, body, None])
    assert (found.to_pylist(), bad, fault) == ([None] * 3, [1], None)


@given(st.binary(max_size=12))
def test_texts_are_utf8_exactly_where_python_says_so(text: bytes) -> None:
    _, bad, _ = Decoding("string").decode("string", [long(len(text)) + text])
    try:
        text.decode()
    except UnicodeDecodeError:
        assert bad == [0]
    else:
        assert not bad


WHOLE = record(
    field("id", "long"),
    field("name", ["null", "string"]),
    field("tags", {"type": "array", "items": {"type": "map", "values": ENUM}}),
    field("rows", {"type": "array", "items": record(field("a", WIDE), field("b", "E"), name="N")}),
    field("last", ["int", "string", "null"]),
)
GOOD = {
    "id": 7,
    "name": (1, "seven"),
    "tags": [[("k", "A"), ("l", "B")], []],
    "rows": [{"a": b"\x05", "b": "B"}, {"a": b"\x06", "b": "A"}],
    "last": (1, "end"),
}


def _good() -> bytes:
    schema = {**WHOLE, "fields": [*WHOLE["fields"]]}
    schema["fields"][3] = field(
        "rows", {"type": "array", "items": record(field("a", WIDE), field("b", ENUM), name="N")}
    )
    return encode_tree(schema, GOOD)


@settings(max_examples=150)
@given(st.data())
def test_damage_of_one_record_leaves_its_neighbours_whole(data: st.DataObject) -> None:
    """The bad record is taken back, items of its lists included."""
    good = _good()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    decoding = Decoding(WHOLE)
    found, bad, _ = decoding.decode(WHOLE, [good, bytes(damaged), good, good[:cut], good])
    rows = found.to_pylist()
    assert rows[0] == rows[2] == rows[4]
    assert rows[0]["tags"] == [[("k", "A"), ("l", "B")], []]
    assert set(bad) <= {1, 3}
    assert all(rows[row] is None for row in bad)
    _, _, fault = decoding.decode(WHOLE, [good, bytes(damaged), good[:cut]], stop_at_bad=True)
    first = min((row if row == 1 else 2 for row in bad), default=None)
    assert (fault and fault.row) == first


def test_a_column_that_gets_full_is_continued_in_another_chunk() -> None:
    schema = record(field("a", {"type": "array", "items": "int"}), field("s", "string"))
    values = [{"a": list(range(n % 300)), "s": "x" * n} for n in range(300)]
    found, bad, _ = Decoding(schema).decode(schema, [encode(schema, value) for value in values])
    assert not bad
    assert found.to_pylist() == values


def test_texts_of_the_schema_may_be_larger_than_the_records() -> None:
    long_symbol, default = "S" * 3000, "d" * 5000
    writer = record(field("e", {"type": "enum", "name": "E", "symbols": [long_symbol]}))
    reader = record(*writer["fields"], field("new", "string", default=default))
    found, bad, _ = Decoding(reader).decode(writer, [long(0)] * 5000)
    assert not bad
    assert found.field("new").unique().to_pylist() == [default]
    assert found.field("e").unique().to_pylist() == [long_symbol]


def test_a_record_that_needs_too_much_memory_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small item may stand for a large default."""
    monkeypatch.setattr(avro_decoder, "_ARENA_BYTES_MAX", 1 << 22)
    old = record(field("rows", {"type": "array", "items": record(field("a", "int"), name="N")}))
    inner = record(field("a", "int"), field("d", "string", default="d" * 5000), name="N")
    new = record(field("rows", {"type": "array", "items": inner}))
    small = encode(old, {"rows": [{"a": 1}]})
    large = encode(old, {"rows": [{"a": 1}] * 5000})
    found, bad, _ = Decoding(new).decode(old, [small, large, small])
    assert bad == [1]
    assert found[0] == found[2]
    _, _, fault = Decoding(new).decode(old, [large], stop_at_bad=True)
    assert fault is not None
    assert "more memory than a record may have" in fault.reason
