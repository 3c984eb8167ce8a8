"""Protobuf schemas: as text and as descriptors, and which ones read data of which."""

import base64

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.registry.schemas.protobuf_compatibility import protobuf_problems
from quorate.broker.registry.schemas.protobuf_schema import parse_protobuf
from quorate.common.proto_files.proto_parser import parse_proto
from quorate.common.schema_errors import InvalidSchema

EVERYTHING = r"""
syntax = "proto2";
package a.b;
import public "google/protobuf/timestamp.proto";
option java_package = "x.y";
option optimize_for = SPEED;
option (my.option).part = { text: "}" number: -1 };
/* A comment; with "quotes. */
message Outer {  // another
  option deprecated = true;
  optional int32 number = 1 [deprecated = true, json_name = "other", (mine) = "\x41\n"];
  map<string, Inner> by_name = 2;
  oneof choice { string text = 3; .a.b.Outer.Inner inner = 4; }
  repeated group Part = 5 { optional sint64 size = 1; }
  required bytes raw = 6 [default = "\001\"x"];
  optional Kind kind = 7 [default = SECOND];
  optional double ratio = 8 [default = -inf];
  optional google.protobuf.Timestamp at = 9;
  repeated int32 packed_numbers = 10 [packed = true];
  optional float f = 11 [default = 1.5e3];
  reserved 20, 22 to 25, 1000 to max;
  reserved "gone", "also";
  extensions 100 to 199;
  enum Kind { option allow_alias = true; FIRST = 0; ALSO = 0; SECOND = -0x10; reserved 5 to 7; }
  message Inner { optional Outer back = 1; }
  extend Outer { optional int32 extra = 100; }
}
service Things {
  rpc Get (Outer) returns (stream Outer.Inner) { option deprecated = true; }
  rpc Put (stream Outer) returns (Outer);
}
"""


def proto3(body: str, head: str = "") -> str:
    return f'syntax = "proto3"; {head}\n{body}'


def message(body: str) -> str:
    return proto3(f"message M {{ {body} }}")


READABLE = [
    # what is changed, the reader's schema, the writer's
    ("nothing", message("int32 a = 1;"), message("int32 a = 1;")),
    ("a field is added", message("int32 a = 1; string b = 2;"), message("int32 a = 1;")),
    ("a field is removed", message("int32 a = 1;"), message("int32 a = 1; string b = 2;")),
    ("a field is renamed", message("int32 b = 1;"), message("int32 a = 1;")),
    ("integers", message("int64 a = 1;"), message("bool a = 1;")),
    ("an enum is an integer", message("int32 a = 1;"), message("enum E { Z = 0; } E a = 1;")),
    ("text and bytes", message("bytes a = 1;"), message("string a = 1;")),
    ("text that is repeated", message("repeated string a = 1;"), message("string a = 1;")),
    ("fixed numbers", message("sfixed32 a = 1;"), message("fixed32 a = 1;")),
    ("a message is added", proto3("message M {} message N {}"), proto3("message M {}")),
    ("a oneof is added", message("oneof o { int32 a = 1; }"), message("int32 a = 1;")),
    ("a oneof is gone", message(""), message("oneof o { int32 a = 1; int32 b = 2; }")),
    ("out of a oneof", message("int32 a = 1;"), message("oneof o { int32 a = 1; }")),
    ("optional", message("optional int32 a = 1;"), message("int32 a = 1;")),
    ("enum values", message("enum E { Z = 0; Y = 1; }"), message("enum E { Z = 0; X = 1; }")),
    ("a map", message("map<string, int64> a = 1;"), message("map<string, int32> a = 1;")),
    ("itself", message("M next = 1; int32 a = 2;"), message("M next = 1;")),
]

UNREADABLE = [
    ("a package", proto3("message M {}", "package b;"), proto3("message M {}", "package a;")),
    ("a message is removed", proto3("message M {}"), proto3("message M {} message N {}")),
    ("zigzag", message("sint32 a = 1;"), message("int32 a = 1;")),
    ("float", message("double a = 1;"), message("float a = 1;")),
    ("text to number", message("int32 a = 1;"), message("string a = 1;")),
    ("many numbers", message("repeated int32 a = 1;"), message("int32 a = 1;")),
    ("another message", message("N a = 1; message N {}"), message("M a = 1; message N {}")),
    ("to a map", message("map<string, int32> a = 1;"), message("string a = 1;")),
    ("in a map", message("map<string, string> a = 1;"), message("map<string, int32> a = 1;")),
    (
        "into one oneof",
        message("oneof o { int32 a = 1; int32 b = 2; }"),
        message("int32 a = 1; int32 b = 2;"),
    ),
    (
        "out of existence",
        message("oneof o { int32 a = 1; }"),
        message("oneof o { int32 a = 1; int32 b = 2; }"),
    ),
    ("required", "message M { required int32 a = 1; }", "message M {}"),
    ("no longer there", "message M {}", "message M { required int32 a = 1; }"),
    (
        "became required",
        "message M { required string a = 1; }",
        "message M { optional string a = 1; }",
    ),
]


@pytest.mark.parametrize(("what", "reader", "writer"), READABLE)
def test_a_reader_reads_data_of_a_writer(what: str, reader: str, writer: str) -> None:
    assert protobuf_problems(parse_protobuf(reader), parse_protobuf(writer)) == [], what


@pytest.mark.parametrize(("what", "reader", "writer"), UNREADABLE)
def test_a_reader_that_does_not_says_why(what: str, reader: str, writer: str) -> None:
    assert protobuf_problems(parse_protobuf(reader), parse_protobuf(writer)), what


def test_messages_of_imported_files_are_compared() -> None:
    root = proto3("message M { N a = 1; }", 'import "n.proto";')
    old = parse_protobuf(root, {"n.proto": proto3("message N { int32 x = 1; }")})
    new = parse_protobuf(root, {"n.proto": proto3("message N { string x = 1; }")})
    assert protobuf_problems(new, old) == [
        "the field /M/1/1 was changed from integer to string or bytes"
    ]


def test_text_and_descriptor_are_one_schema() -> None:
    as_text = parse_protobuf(EVERYTHING)
    from_descriptor = parse_protobuf(as_text.serialized)
    assert from_descriptor.text.startswith('syntax = "proto2";\npackage a.b;\n')
    assert from_descriptor.identity == as_text.identity
    assert parse_protobuf(from_descriptor.text).identity == as_text.identity


def test_options_that_cannot_be_written_keep_the_descriptor() -> None:
    file = parse_proto("x.proto", message("int32 a = 1;"))
    unknown = descriptor_pb2.FieldOptions.FromString(b"\xc2\x3e\x01x")  # An extension, 1000.
    file.message_type[0].field[0].options.CopyFrom(unknown)
    given_text = base64.b64encode(file.SerializeToString()).decode()
    kept = parse_protobuf(given_text)
    assert "message" not in kept.text
    assert parse_protobuf(kept.text).identity == kept.identity
    assert kept.identity != parse_protobuf(message("int32 a = 1;")).identity


def test_the_descriptor_is_that_of_protoc() -> None:
    field, by_name, *_ = parse_proto("x.proto", EVERYTHING).message_type[0].field
    assert (field.json_name, field.options.deprecated) == ("other", True)
    assert field.options.uninterpreted_option[0].string_value == b"A\n"
    assert (by_name.type_name, by_name.json_name) == ("ByNameEntry", "byName")
    third = parse_proto("x.proto", message("optional int32 a = 1; oneof o { int32 b = 2; }"))
    names = [one.name for one in third.message_type[0].oneof_decl]
    assert names == ["o", "_a"]  # Those of optional fields come last.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage", "line 1: expected a declaration, found 'garbage'"),
        ("message {", "expected the name of a message"),
        ("message M {\n  optional int32 a = 1\n}", "line 3: expected ';', found '}'"),
        ("message M { optional int32 a = 0; }", "expected a number from 1"),
        ("message M { optional int32 a = 01x; }", "expected"),
        ("message M { optional Missing a = 1; }", "Missing"),
        ("message M { optional int32 a = 1; optional int32 b = 1; }", "the field number 1 twice"),
        ('import "missing.proto";', "'missing.proto' is imported, and no reference has it"),
        ('syntax = "proto9";', "the syntax 'proto9' is unknown"),
        ("option nothing = 1;", "nothing is no option"),
        ("option java_package = 1;", "expected a string"),
        ("message M {" * 100, "nested more than 64 deep"),
        ('message M { repeated bytes a = 1 [default = "x"]; }', "cannot have a default"),
        ("message M { oneof o { } }", "a oneof without fields"),
        ("message M { map<float, int32> a = 1; }", "keys of maps"),
        ("message M { reserved 1; optional int32 a = 1; }", "reserved"),
        ("message M {} enum M { A = 0; }", "'M' is defined twice"),
        ("enum E { A = 0; B = 0; }", "the number 0 twice"),
        ('syntax = "proto3"; enum E { A = 1; }', "is not 0"),
        ("/* open", "'/'"),
        ('message M { optional string a = 1 [default = "x\n"]; }', "is no token"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as raised:
        parse_protobuf(text)
    assert said in str(raised.value)


def test_files_that_import_each_other_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="imports itself"):
        parse_protobuf('import "a.proto";', {"a.proto": 'import "a.proto";'})


@given(st.binary(max_size=60), st.integers(0, 2_000), st.integers(1, 255))
def test_no_descriptor_breaks_anything(extra: bytes, place: int, change: int) -> None:
    """Whatever comes as base64 is a schema or is refused: damaged descriptors among others."""
    whole = bytearray(base64.b64decode(parse_protobuf(EVERYTHING).serialized))
    whole[place % len(whole)] ^= change
    for raw in (bytes(whole), extra):
        try:
            parsed = parse_protobuf(base64.b64encode(raw).decode())
        except InvalidSchema:
            continue
        protobuf_problems(parsed, parsed)
