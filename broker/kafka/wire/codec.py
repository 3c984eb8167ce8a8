"""Decoding of requests and encoding of responses, by the layouts of kio's generated classes.

kio describes Kafka's messages, but reading and writing is done here, for three reasons. kio's
native decoder trusts array lengths, and aborts the process on a hostile one. It copies records. And
its encoder needs a tree of objects in which every version has its own class. Here a message is a
plain dict: a response may contain the fields of all versions, and each version takes its own. Times
are whole milliseconds, error codes are numbers, and ids are ``UUID``. Tagged fields of requests are
skipped, because none of the requests decoded here has a known one.
"""

import dataclasses
import datetime
import functools
import struct
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from quorate.broker.kafka.wire.kio_layouts import EntityType, load_entity_schema, schema_name_map
from quorate.broker.kafka.wire.primitives import Cursor, MalformedRequest, append_uvarint

Message = dict[str, Any]
"""A message: a dict from the name of each field, in kio's spelling, to its value. Nested
messages are dicts, and arrays are lists.
"""

TAGS: Final = "_tags"
"""The key under which a message has its extra tagged fields, a dict from tag number to raw
bytes.
"""


class Encoded(bytes):
    """A whole array that is already encoded for the version of the response."""


Decoder = Callable[[Cursor], Any]
Encoder = Callable[[bytearray, Any], None]

_FIXED: Final[Mapping[str, tuple[Decoder, str]]] = {
    "int8": (Cursor.int8, ">b"),
    "int16": (Cursor.int16, ">h"),
    "int32": (Cursor.int32, ">i"),
    "int64": (Cursor.int64, ">q"),
    "uint16": (Cursor.uint16, ">H"),
    "uint32": (Cursor.uint32, ">I"),
    "float64": (Cursor.float64, ">d"),
    "bool": (Cursor.boolean, ">?"),
    "error_code": (Cursor.int16, ">h"),
    "timedelta_i32": (Cursor.int32, ">i"),
    "timedelta_i64": (Cursor.int64, ">q"),
    "datetime_i64": (Cursor.int64, ">q"),
}
_NO_UUID: Final = bytes(16)


def has_schema(name: str, version: int) -> bool:
    return version in schema_name_map[name]


def request_is_flexible(name: str, version: int) -> bool:
    return bool(schema_of(name, version, EntityType.request).__flexible__)


def decode_request(name: str, version: int, cursor: Cursor) -> Message:
    """Decode the body of a request.

    Raises:
        MalformedRequest: the bytes are not such a request.
    """
    decoded: Message = entity_decoder(schema_of(name, version, EntityType.request))(cursor)
    return decoded


def encode_response(name: str, version: int, values: Message) -> bytes:
    """Encode the body of a response. Fields that the version does not have are left out. Absent
    fields get the default of the schema.

    Raises:
        KeyError: a field without a default is missing.
    """
    out = bytearray()
    entity_encoder(schema_of(name, version, EntityType.response))(out, values)
    return bytes(out)


def response_has_error_code(name: str, version: int) -> bool:
    """Return whether the response has an error code for the request as a whole."""
    schema = schema_of(name, version, EntityType.response)
    return any(field.name == "error_code" for field in dataclasses.fields(schema))


@functools.cache
def throttle_place(name: str, version: int) -> int | None:
    """Return the position of the throttle time in a response: 0, its beginning, or None if it
    does not begin with one.
    """
    schema = schema_of(name, version, EntityType.response)
    first = next(iter(dataclasses.fields(schema)), None)
    return 0 if first is not None and first.name == "throttle_time" else None


def encode_failure(name: str, version: int, error_code: int, error_message: str) -> bytes:
    """Encode a response that contains only the failure of the request as a whole."""
    schema = schema_of(name, version, EntityType.response)
    values = {field.name: _empty_value(field) for field in dataclasses.fields(schema)}
    values.update(error_code=error_code)
    if "error_message" in values:
        values.update(error_message=error_message)
    return encode_response(name, version, values)


_SAME_LAYOUT_AS_VERSION_BEFORE: Final = frozenset(
    {
        ("incremental_alter_configs", 2),
        ("renew_delegation_token", 3),
        ("expire_delegation_token", 3),
    }
)
"""The versions of the bridge release that upstream Kafka does not have. They have the layout of
the version before, and differ in where they are forwarded to, see
``quorate.broker.changes.table`` (F1).
"""


@functools.cache
def schema_of(
    name: str,
    version: int,
    kind: typing.Literal[EntityType.request, EntityType.response],
) -> Any:  # noqa: ANN401 - a generated dataclass; its fields are looked at, not used
    if (name, version) in _SAME_LAYOUT_AS_VERSION_BEFORE:
        version -= 1
    return load_entity_schema(name, version, kind)


class Shape(typing.NamedTuple):
    """The layout of one field on the wire."""

    name: str
    kafka_type: str
    nested: Any
    is_array: bool
    nullable: bool
    nullable_elements: bool
    """True if the elements of an array may be null. For a field that is not an array, true if
    the field itself may be null.
    """
    tag: int | None
    default: Any


def shape_of(field: "dataclasses.Field[Any]") -> Shape:
    inner, nullable = _without_none(field.type)
    is_array = typing.get_origin(inner) is tuple
    nullable_elements = nullable
    if is_array:
        inner, nullable_elements = _without_none(typing.get_args(inner)[0])
    nested = inner if dataclasses.is_dataclass(inner) else None
    return Shape(
        name=field.name,
        kafka_type=field.metadata.get("kafka_type", ""),
        nested=nested,
        is_array=is_array,
        nullable=nullable,
        nullable_elements=nullable_elements,
        tag=field.metadata.get("tag"),
        default=_in_milliseconds(field.default),
    )


def _in_milliseconds(default: object) -> object:
    """Convert a default value of kio's. Times are whole milliseconds here."""
    if isinstance(default, datetime.timedelta):
        return default // datetime.timedelta(milliseconds=1)
    return default


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401 - an annotation
    """Return the type itself, and whether None is allowed in its place."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        alternatives = [item for item in typing.get_args(kind) if item is not types.NoneType]
        return alternatives[0], True
    return kind, False


def _empty_value(field: "dataclasses.Field[Any]") -> object:
    shape = shape_of(field)
    if shape.default is not dataclasses.MISSING:
        return shape.default
    if shape.is_array:
        return ()
    if shape.nullable:
        return None
    if shape.nested is not None:
        return {one.name: _empty_value(one) for one in dataclasses.fields(shape.nested)}
    return {"string": "", "bytes": b""}.get(shape.kafka_type, 0)


@functools.cache
def entity_decoder(schema: Any) -> Decoder:  # noqa: ANN401
    flexible = bool(schema.__flexible__)
    shapes = [shape_of(field) for field in dataclasses.fields(schema)]
    plain = [(s.name, field_decoder(s, flexible)) for s in shapes if s.tag is None]

    def decode(cursor: Cursor) -> Message:
        message = {name: read(cursor) for name, read in plain}
        if flexible:
            cursor.skip_tagged_fields()
        return message

    return decode


def field_decoder(shape: Shape, flexible: bool) -> Decoder:
    element = element_decoder(shape, flexible)
    if shape.is_array:
        return _array_decoder(shape, element, flexible)
    return _optional_decoder(element) if shape.nested is not None and shape.nullable else element


def _optional_decoder(element: Decoder) -> Decoder:
    """Decode a message that may be absent. The byte before it is negative if there is no
    message.
    """

    def decode(cursor: Cursor) -> Any:  # noqa: ANN401 - a Message, or None
        return None if cursor.int8() < 0 else element(cursor)

    return decode


def _array_decoder(shape: Shape, element: Decoder, flexible: bool) -> Decoder:
    def decode(cursor: Cursor) -> list[Any] | None:
        length = cursor.array_length(flexible=flexible)
        if length is None:
            check_nullable(shape, shape.nullable)
            return None
        return [element(cursor) for _ in range(length)]

    return decode


def element_decoder(shape: Shape, flexible: bool) -> Decoder:
    if shape.nested is not None:
        return entity_decoder(shape.nested)
    if shape.kafka_type in _FIXED:
        return _FIXED[shape.kafka_type][0]
    if shape.kafka_type == "uuid":
        return Cursor.uuid
    read = Cursor.text if shape.kafka_type == "string" else Cursor.data

    def decode(cursor: Cursor) -> str | memoryview | None:
        value = read(cursor, flexible=flexible)
        if value is None:
            check_nullable(shape, shape.nullable_elements)
        return value

    return decode


def check_nullable(shape: Shape, nullable: bool) -> None:
    if not nullable:
        raise MalformedRequest(f"{shape.name} is null")


@functools.cache
def entity_encoder(schema: Any) -> Encoder:  # noqa: ANN401
    flexible = bool(schema.__flexible__)
    shapes = [shape_of(field) for field in dataclasses.fields(schema)]
    plain = [(s.name, s.default, field_encoder(s, flexible)) for s in shapes if s.tag is None]
    tagged = [(s.name, s.tag, field_encoder(s, flexible)) for s in shapes if s.tag is not None]

    def encode(out: bytearray, message: Message) -> None:
        for name, default, write in plain:
            value = message.get(name, default)
            if value is dataclasses.MISSING:
                raise KeyError(f"{schema.__name__}.{name}")
            write(out, value)
        if flexible and (tagged or TAGS in message):
            append_tags(out, tags_of(message, tagged))
        elif flexible:
            out.append(0)

    return encode


def tags_of(
    message: Message, tagged: typing.Iterable[tuple[str, int, Encoder]]
) -> Mapping[int, bytes]:
    """Return the tagged fields of a message, encoded, by their tags.

    ``tagged`` are those that its layout has. Others are under ``TAGS``.
    """
    tags: dict[int, bytes] = dict(message.get(TAGS, {}))
    for name, tag, write in tagged:
        if name in message:
            encoded = bytearray()
            write(encoded, message[name])
            tags[tag] = bytes(encoded)
    return tags


def append_tags(out: bytearray, tags: Mapping[int, bytes]) -> None:
    append_uvarint(out, len(tags))
    for tag in sorted(tags):
        append_uvarint(out, tag)
        append_uvarint(out, len(tags[tag]))
        out += tags[tag]


def field_encoder(shape: Shape, flexible: bool) -> Encoder:
    element = element_encoder(shape, flexible)
    if not shape.is_array:
        return _optional_encoder(element) if shape.nested and shape.nullable else element

    def encode(out: bytearray, values: typing.Sequence[Any] | Encoded | None) -> None:
        if isinstance(values, Encoded):
            out += values
            return
        append_length(out, None if values is None else len(values), flexible, ">i")
        for value in values or ():
            element(out, value)

    return encode


def _optional_encoder(element: Encoder) -> Encoder:
    def encode(out: bytearray, value: Message | None) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            element(out, value)

    return encode


def element_encoder(shape: Shape, flexible: bool) -> Encoder:
    if shape.nested is not None:
        return entity_encoder(shape.nested)
    if shape.kafka_type in _FIXED:
        pack = struct.Struct(_FIXED[shape.kafka_type][1]).pack
        return lambda out, value: out.extend(pack(value))
    if shape.kafka_type == "uuid":
        return lambda out, value: out.extend(value.bytes if isinstance(value, UUID) else _NO_UUID)
    legacy_length = ">h" if shape.kafka_type == "string" else ">i"

    def encode(out: bytearray, value: str | bytes | None) -> None:
        raw = value.encode() if isinstance(value, str) else value
        append_length(out, None if raw is None else len(raw), flexible, legacy_length)
        out += raw or b""

    return encode


def append_length(out: bytearray, length: int | None, flexible: bool, legacy: str) -> None:
    if flexible:
        append_uvarint(out, 0 if length is None else length + 1)
    else:
        out += struct.pack(legacy, -1 if length is None else length)
