"""Resolves the names in the descriptor of a .proto file, and refuses what protoc refuses.

protobuf's own library does this, too, but it ends the process on some files that clients could
send, such as one with a default of a repeated field.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf import descriptor_pb2

from quorate.common.schema_errors import InvalidSchema

FileProto: TypeAlias = descriptor_pb2.FileDescriptorProto
MessageProto: TypeAlias = descriptor_pb2.DescriptorProto
EnumProto: TypeAlias = descriptor_pb2.EnumDescriptorProto
FieldProto = descriptor_pb2.FieldDescriptorProto

_IMPLEMENTATION: Final = range(19_000, 20_000)
"""The numbers that protobuf keeps for itself."""
_NO_MAP_KEYS: Final = frozenset(
    {FieldProto.TYPE_FLOAT, FieldProto.TYPE_DOUBLE, FieldProto.TYPE_BYTES}
)


class Symbols(NamedTuple):
    """The types of some files, by their full names without the first dot."""

    messages: Mapping[str, MessageProto]
    enums: Mapping[str, EnumProto]


def symbols_of(files: Mapping[str, FileProto]) -> Symbols:
    """Return all types of files.

    Raises:
        InvalidSchema: two have one name.
    """
    messages: dict[str, MessageProto] = {}
    enums: dict[str, EnumProto] = {}
    for file in files.values():
        for name, message in messages_of(file):
            _require_new(name, messages, enums)
            messages[name] = message
        holders: list[tuple[str, FileProto | MessageProto]] = [(file.package, file)]
        holders += messages_of(file)
        for scope, holder in holders:
            for enum in holder.enum_type:
                name = _joined(scope, enum.name)
                _require_new(name, messages, enums)
                enums[name] = enum
    return Symbols(messages, enums)


def messages_of(file: FileProto) -> Iterator[tuple[str, MessageProto]]:
    """Yield all messages of a file, also those within others, with their full names."""
    waiting = [(_joined(file.package, one.name), one) for one in reversed(file.message_type)]
    while waiting:
        name, message = waiting.pop()
        yield name, message
        nested = reversed(message.nested_type)
        waiting += [(_joined(name, one.name), one) for one in nested]


def link(file: FileProto, symbols: Symbols) -> None:
    """Replace the names of types in a file by full ones, and check the file.

    Raises:
        InvalidSchema: a type does not exist, or something contradicts itself.
    """
    is_proto3 = file.syntax == "proto3"
    for name, message in messages_of(file):
        for field in (*message.field, *message.extension):
            _link_field(field, name, symbols)
        _check_message(message, name, symbols, is_proto3)
        for enum in message.enum_type:
            _check_enum(enum, _joined(name, enum.name), is_proto3)
    for enum in file.enum_type:
        _check_enum(enum, _joined(file.package, enum.name), is_proto3)
    for field in file.extension:
        _link_field(field, file.package, symbols)
    for service in file.service:
        for method in service.method:
            method.input_type = _message_named(method.input_type, file.package, symbols)
            method.output_type = _message_named(method.output_type, file.package, symbols)


def _link_field(field: FieldProto, scope: str, symbols: Symbols) -> None:
    if field.HasField("extendee"):
        field.extendee = _message_named(field.extendee, scope, symbols)
    if not field.type_name:
        return
    found = _resolved(field.type_name, scope, symbols)
    field.type_name = f".{found}"
    if found in symbols.enums:
        field.type = FieldProto.TYPE_ENUM
    elif field.type != FieldProto.TYPE_GROUP:
        field.type = FieldProto.TYPE_MESSAGE


def _message_named(name: str, scope: str, symbols: Symbols) -> str:
    found = _resolved(name, scope, symbols)
    if found not in symbols.messages:
        raise InvalidSchema(f"{name!r:.200} is no message")
    return f".{found}"


def _resolved(name: str, scope: str, symbols: Symbols) -> str:
    """Return the full name of a type, which is looked for from the inside out."""
    if name.startswith("."):
        candidates = [name[1:]]
    else:
        parts = scope.split(".") if scope else []
        candidates = [".".join([*parts[:end], name]) for end in range(len(parts), -1, -1)]
    for candidate in candidates:
        if candidate in symbols.messages or candidate in symbols.enums:
            return candidate
    raise InvalidSchema(f"the type {name!r:.200}, which is named in {scope!r:.200}, is unknown")


def _check_message(message: MessageProto, name: str, symbols: Symbols, is_proto3: bool) -> None:
    _require_once(name, "field", [one.name for one in message.field])
    _require_once(name, "field number", [one.number for one in message.field])
    for field in message.field:
        place = f"{name}.{field.name}"
        if field.number in _IMPLEMENTATION or _is_reserved(message, field):
            raise InvalidSchema(f"the name or the number {field.number} of {place} is reserved")
        _check_field(field, place, symbols, is_proto3)
    used = {one.oneof_index for one in message.field if one.HasField("oneof_index")}
    if used != set(range(len(message.oneof_decl))):
        raise InvalidSchema(f"{name} has a oneof without fields")
    if message.options.map_entry and message.field[0].type in _NO_MAP_KEYS | {
        FieldProto.TYPE_MESSAGE,
        FieldProto.TYPE_ENUM,
    }:
        raise InvalidSchema(f"{name} has keys of a type that keys of maps cannot have")


def _is_reserved(message: MessageProto, field: FieldProto) -> bool:
    spans = [(one.start, one.end) for one in message.reserved_range]
    spans += [(one.start, one.end) for one in message.extension_range]
    return field.name in message.reserved_name or any(
        start <= field.number < end for start, end in spans
    )


def _check_field(field: FieldProto, place: str, symbols: Symbols, is_proto3: bool) -> None:
    if field.HasField("default_value"):
        is_single = field.label != FieldProto.LABEL_REPEATED
        has_values = field.type not in (FieldProto.TYPE_MESSAGE, FieldProto.TYPE_GROUP)
        if is_proto3 or not is_single or not has_values:
            raise InvalidSchema(f"{place} cannot have a default")
        if field.type == FieldProto.TYPE_ENUM:
            values = symbols.enums[field.type_name[1:]].value
            if field.default_value not in [one.name for one in values]:
                raise InvalidSchema(f"the default of {place} is no value of its enum")
    if is_proto3 and (
        field.label == FieldProto.LABEL_REQUIRED or field.type == FieldProto.TYPE_GROUP
    ):
        raise InvalidSchema(f"{place} is required or a group, which proto3 does not have")


def _check_enum(enum: EnumProto, name: str, is_proto3: bool) -> None:
    if not enum.value:
        raise InvalidSchema(f"the enum {name} has no values")
    if is_proto3 and enum.value[0].number != 0:
        raise InvalidSchema(f"the first value of the enum {name} is not 0, as in proto3")
    _require_once(name, "value", [one.name for one in enum.value])
    if not enum.options.allow_alias:
        _require_once(name, "number", [one.number for one in enum.value])


def _require_once(name: str, what: str, found: list[Any]) -> None:
    twice = [one for one, count in Counter(found).items() if count > 1]
    if twice:
        raise InvalidSchema(f"{name} has the {what} {twice[0]!r:.80} twice")


def _require_new(name: str, *tables: Mapping[str, object]) -> None:
    if any(name in table for table in tables):
        raise InvalidSchema(f"{name!r:.200} is defined twice")


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
