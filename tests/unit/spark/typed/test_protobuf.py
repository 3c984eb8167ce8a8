"""Values in Protobuf: types, versions of a message, damaged bytes, and which message they are."""

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from quorate.spark.errors import ValueSchemaError
from quorate.spark.retries import RetryPolicy
from quorate.spark.typed.protobuf_format import ProtobufFormat, protobuf_format
from quorate.spark.typed.protobuf_text import descriptors_of, message_at, path_of
from quorate.spark.typed.protobuf_values import DEEP_BYTES, message_path
from quorate.spark.typed.registry_settings import ReferencedSchema, RegistrySettings
from tests.support.stub_registry import StubRegistry, framed
from tests.support.value_decoding import decode

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

// An order.
message Order {
  option deprecated = true;
  enum Status { option allow_alias = true; NEW = 0; SENT = 1; GONE = 1; }
  message Line { string sku = 1; uint32 count = 2; }
  int32 i32 = 1;
  int64 i64 = 2;
  uint32 u32 = 3;
  uint64 u64 = 4;
  sint64 s64 = 5;
  fixed32 f32 = 6;
  sfixed64 sf64 = 7;
  float single = 8;
  double twice = 9;
  bool ok = 10;
  string name = 11;
  bytes raw = 12;
  Status status = 13;
  Line line = 14;
  repeated Line lines = 15;
  repeated int64 numbers = 16;
  map<string, Line> by_name = 17;
  map<int32, uint64> counts = 18;
  google.protobuf.Timestamp at = 19;
  google.protobuf.Duration took = 20;
  google.protobuf.StringValue note = 21;
  optional int32 maybe = 22;
  oneof paid { string card = 23; bool cash = 24; }
  reserved 30, 40 to 50;
}
message Other { int64 x = 1; }
service Shop { rpc Buy (Order) returns (Other); }
"""
FORMAT = protobuf_format(descriptors_of(TEXT), None, None)
EMPTY: dict[str, Any] = {
    "i32": 0, "i64": 0, "u32": 0, "u64": Decimal(0), "s64": 0, "f32": 0, "sf64": 0, "single": 0.0,
    "twice": 0.0, "ok": False, "name": "", "raw": b"", "status": "NEW", "line": None, "lines": [],
    "numbers": [], "by_name": [], "counts": [], "at": None, "took": None, "note": None,
    "maybe": None, "card": None, "cash": None,
}  # fmt: skip


def message(about: ProtobufFormat = FORMAT, **fields: object) -> Any:  # noqa: ANN401
    made: type[Message] = message_factory.GetMessageClass(about.descriptor())
    return made(**fields)


def full() -> bytes:
    order = message(
        i32=-1, i64=-(1 << 63), u32=(1 << 32) - 1, u64=(1 << 64) - 1, s64=-7, f32=(1 << 32) - 1,
        sf64=-9, single=1.5, twice=-2.25, ok=True, name="zoë", raw=b"\xff", status=1,
        numbers=[1, -2], counts={5: (1 << 64) - 1}, maybe=0, cash=False,
    )  # fmt: skip
    order.line.sku = "a"
    order.lines.add(count=(1 << 32) - 1)
    order.by_name["b"].count = 3
    order.at.FromMilliseconds(1_700_000_000_123)
    order.took.FromMilliseconds(1500)
    order.note.value = ""
    data: bytes = order.SerializeToString()
    return data


FULL: dict[str, Any] = {
    "i32": -1,
    "i64": -(1 << 63),
    "u32": (1 << 32) - 1,
    "u64": Decimal((1 << 64) - 1),
    "s64": -7,
    "f32": (1 << 32) - 1,
    "sf64": -9,
    "single": 1.5,
    "twice": -2.25,
    "ok": True,
    "name": "zoë",
    "raw": b"\xff",
    "status": "SENT",
    "line": {"sku": "a", "count": 0},
    "lines": [{"sku": "", "count": (1 << 32) - 1}],
    "numbers": [1, -2],
    "by_name": [("b", {"sku": "", "count": 3})],
    "counts": [(5, Decimal((1 << 64) - 1))],
    "at": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC),
    "took": dt.timedelta(seconds=1.5),
    "note": "",
    "maybe": 0,
    "card": None,
    "cash": False,
}


def test_messages_of_every_type() -> None:
    found, bad, _ = decode(FORMAT, [full(), None, b"", full()])
    assert found == [FULL, None, EMPTY, FULL]
    assert not bad


def test_only_what_is_selected_is_decoded() -> None:
    whole = FORMAT.spark_type
    assert isinstance(whole, StructType)
    about = FORMAT.selected(StructType([whole["cash"], whole["name"], whole["maybe"]]))
    found, _, _ = decode(about, [full(), b""])
    assert found == [
        {"cash": False, "name": "zoë", "maybe": 0},
        {"cash": None, "name": "", "maybe": None},
    ]


def test_fields_within_messages_are_selected_as_well() -> None:
    whole = FORMAT.spark_type
    assert isinstance(whole, StructType)
    lines: Any = whole["lines"].dataType
    sku = StructType([lines.elementType["sku"]])
    wanted = StructType().add("lines", type(lines)(sku))
    found, _, _ = decode(FORMAT.selected(wanted), [full()])
    assert found == [{"lines": [{"sku": ""}]}]


def test_a_reader_of_another_version() -> None:
    newer = protobuf_format(
        descriptors_of('syntax = "proto3"; message Order { string name = 11; bool more = 99; }'),
        None,
        None,
    )
    found, _, _ = decode(newer, [full()])
    assert found == [{"name": "zoë", "more": False}]


@pytest.mark.parametrize(
    "value",
    [
        full()[:-1],
        b"\x5a\x02\xff\xfe",  # No UTF-8.
        b"\x5a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # ptars panics over this length,
        b"\x9a\x01\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # and over this time.
        b"\x07",
        b"\x9b\x06" * 100,
        # Groups that are nested so deeply that ptars would use up the stack.
        b"\x9b\x06" * 3_000_000,
        b"\x9b\x06" * 3_000_000 + b"\x9c\x06" * 3_000_000,
    ],
)
def test_damaged_messages_are_bad_and_their_neighbours_are_read(value: bytes) -> None:
    found, bad, _ = decode(FORMAT, [full(), value, b""])
    assert found == [FULL, None, EMPTY]
    assert bad == [1]


def test_large_values_are_read() -> None:
    large = message(raw=b"x" * (2 * DEEP_BYTES)).SerializeToString()
    found, bad, _ = decode(FORMAT, [large])
    assert len(found[0]["raw"]) == 2 * DEEP_BYTES
    assert not bad


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_found_where_protobuf_finds_it(data: st.DataObject) -> None:
    good = full()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    value = bytes(damaged[: data.draw(st.integers(0, len(good)))])
    found, bad, _ = decode(FORMAT, [good, value, good])
    assert found[0] == found[2] == FULL
    try:
        expected = message().FromString(value)
    except DecodeError:
        # ptars is more lenient about what no field is read from.
        return
    if not bad:
        assert found[1]["name"] == expected.name
        assert found[1]["i64"] == expected.i64
        assert found[1]["numbers"] == list(expected.numbers)


# --- schemas --------------------------------------------------------------------------------------


def test_a_set_of_descriptors_in_base64_is_a_schema() -> None:
    encoded = base64.encodebytes(descriptors_of(TEXT).SerializeToString()).decode()
    about = protobuf_format(descriptors_of(encoded), "shop.Other", None)
    assert about.spark_type.simpleString() == "struct<x:bigint>"


def test_a_set_of_descriptors_that_would_end_the_process_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto2")
    part = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="A").field.add(
        name="x",
        number=1,
        label=part.LABEL_REPEATED,
        type=part.TYPE_INT32,
        default_value="7",
    )
    encoded = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(ValueSchemaError, match=r"A\.x cannot have a default"):
        protobuf_format(descriptors_of(base64.b64encode(encoded).decode()), None, None)


def test_imports_are_found_among_the_references() -> None:
    part = ReferencedSchema(
        "part.proto", 'syntax = "proto3"; package p; message Part { int32 n = 1; }'
    )
    text = 'syntax = "proto3"; import "part.proto"; message Whole { p.Part part = 1; }'
    about = protobuf_format(descriptors_of(text, [part]), None, None)
    assert about.spark_type.simpleString() == "struct<part:struct<n:int>>"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", None, "has no message"),
        ("syntax =", None, r"is no \.proto file"),
        ("message A { repeated int32 x = 1 [default = 7]; }", None, "A.x cannot have a default"),
        ('syntax = "proto3"; message A { strin x = ; }', None, r"is no \.proto file"),
        ('syntax = "proto3"; message A { Strin x = 1; }', None, "does not fit together"),
        ('syntax = "proto3"; import "x.proto"; message A { int32 x = 1; }', None, "'x.proto'"),
        ('syntax = "proto3"; message A { A a = 1; }', None, "the Protobuf message A contains its"),
        ("message A { optional group G = 1 { optional int32 x = 1; } }", None, "is a group"),
        (TEXT, "shop.Ordre", "no message 'shop.Ordre'; it has shop.Order, shop.Order.Line, shop.O"),
        (
            'syntax = "proto3"; import "google/protobuf/struct.proto"; '
            "message A { google.protobuf.Struct s = 1; }",
            None,
            "contains itself",
        ),
    ],
)
def test_schemas_that_are_refused(text: str, name: str | None, message: str) -> None:
    with pytest.raises(ValueSchemaError, match=message):
        protobuf_format(descriptors_of(text), name, None)


def test_paths_of_messages() -> None:
    files = descriptors_of(TEXT)
    assert message_at(files, (0,)) == "shop.Order"
    assert message_at(files, (0, 0)) == "shop.Order.Line"
    assert message_at(files, (1,)) == "shop.Other"
    assert [message_at(files, path) for path in ((2,), (-1,), (), (0, 99))] == [None] * 4
    line = protobuf_format(files, "shop.Order.Line", None).descriptor()
    assert path_of(line) == [0, 0]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (b"\x02\x02", (7, (1,))),
        (b"\x04\x00\x02", (8, (0, 1))),
        (b"", (0, ())),
        (b"\x04\x00", (0, ())),
        (b"\x01", (0, ())),
        (b"\xff\xff\xff\xff\xff\xff", (0, ())),
        (b"\xfe\x01" + b"\0" * 200, (0, ())),
    ],
)
def test_prefixes(prefix: bytes, found: tuple[int, tuple[int, ...]]) -> None:
    assert message_path(framed(1, prefix)) == found


def test_records_name_their_message_by_the_schema_of_their_writer() -> None:
    with StubRegistry() as registry:
        settings_ = RegistrySettings((registry.url,), retry_policy=RetryPolicy(0, 1))
        reader = registry.add("orders-value", TEXT, "PROTOBUF")
        # A version in which the message is the second one of the file.
        moved = registry.add(
            "orders-value",
            'syntax = "proto3"; package shop; message First {} message Order { string name = 11; }',
            "PROTOBUF",
        )
        avro = registry.add("other-value", "string")
        about = protobuf_format(descriptors_of(TEXT), None, settings_)
        order = message(name="x").SerializeToString()
        values = [
            framed(reader, b"\0" + order),
            framed(reader, b"\x02\x00" + order),  # The path of the first message, written out.
            framed(moved, b"\x02\x02" + order),
            None,
            framed(reader, b"\x02\x02" + order),
            framed(moved, b"\0" + order),
            framed(avro, b"\0" + order),
            framed(99, b"\0" + order),
            framed(reader, b""),
            order,
            framed(reader, b"\0" + order[:-1]),
        ]
        found, bad, fault = decode(about, values)
    assert [row and row["name"] for row in found[:4]] == ["x", "x", "x", None]
    assert bad == list(range(4, 11))
    assert fault is not None
    assert fault.reason == "schema id 1: it is the message shop.Other, not shop.Order"
