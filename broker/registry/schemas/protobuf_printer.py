"""Writes the descriptor of a .proto file as text.

Not every option can be written, because their extensions may be unknown here. Whoever needs the
text parses it again and compares.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from quorate.common.proto_files.proto_parser import MAX_ENUM, MAX_FIELD, SCALARS, json_name

FieldProto = descriptor_pb2.FieldDescriptorProto
_TYPE_NAMES: Final[Mapping[int, str]] = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {FieldProto.LABEL_REQUIRED: "required ", FieldProto.LABEL_REPEATED: "repeated "}


def proto_text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the text of a file whose names are resolved."""
    return "\n".join(_Printer(file).lines()) + "\n"


class _Printer:
    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._file = file
        self._labels = file.syntax not in ("proto3", "editions")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            yield f'edition = "{edition}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for number, name in enumerate(file.dependency):
            kind = "public " if number in file.public_dependency else ""
            kind = "weak " if number in file.weak_dependency else kind
            yield f"import {kind}{_quoted(name)};"
        yield from _option_lines(file.options, "")
        for message in file.message_type:
            yield from self._message(message, "")
        for enum in file.enum_type:
            yield from _enum(enum, "")
        yield from self._extensions(file.extension, "", file.message_type)
        for service in file.service:
            yield from _service(service)

    def _message(self, message: descriptor_pb2.DescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}message {message.name} {{"
        yield from self._body(message, indent + "  ")
        yield f"{indent}}}"

    def _body(self, message: descriptor_pb2.DescriptorProto, indent: str) -> Iterator[str]:
        yield from _option_lines(message.options, indent)
        inside = {one.name: one for one in message.nested_type}
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, indent, inside)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                yield from self._oneof(message, field.oneof_index, indent, inside)
        groups = {one.type_name.rpartition(".")[2] for one in message.field if _is_group(one)}
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in groups:
                yield from self._message(nested, indent)
        for enum in message.enum_type:
            yield from _enum(enum, indent)
        for extended in message.extension_range:
            span = _range(extended.start, extended.end - 1, MAX_FIELD)
            yield f"{indent}extensions {span}{_brackets(_option_items(extended.options))};"
        for reserved in message.reserved_range:
            yield f"{indent}reserved {_range(reserved.start, reserved.end - 1, MAX_FIELD)};"
        for name in message.reserved_name:
            yield f"{indent}reserved {_quoted(name)};"
        yield from self._extensions(message.extension, indent, message.nested_type)

    def _oneof(
        self,
        message: descriptor_pb2.DescriptorProto,
        number: int,
        indent: str,
        inside: Mapping[str, descriptor_pb2.DescriptorProto],
    ) -> Iterator[str]:
        oneof = message.oneof_decl[number]
        yield f"{indent}oneof {oneof.name} {{"
        yield from _option_lines(oneof.options, indent + "  ")
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == number:
                yield from self._field(field, indent + "  ", inside, in_oneof=True)
        yield f"{indent}}}"

    def _field(
        self,
        field: FieldProto,
        indent: str,
        inside: Mapping[str, descriptor_pb2.DescriptorProto],
        *,
        in_oneof: bool = False,
    ) -> Iterator[str]:
        items = _brackets([*_field_items(field), *_option_items(field.options)])
        message = inside.get(field.type_name.rpartition(".")[2])
        if message is not None and message.options.map_entry:
            key, value = (_type_name(one) for one in message.field)  # ValueError: not two.
            yield f"{indent}map<{key}, {value}> {field.name} = {field.number}{items};"
            return
        label = "" if in_oneof else self._label(field)
        if message is not None and _is_group(field):
            yield f"{indent}{label}group {message.name} = {field.number}{items} {{"
            yield from self._body(message, indent + "  ")
            yield f"{indent}}}"
            return
        yield f"{indent}{label}{_type_name(field)} {field.name} = {field.number}{items};"

    def _label(self, field: FieldProto) -> str:
        if field.label == FieldProto.LABEL_OPTIONAL:
            return "optional " if self._labels or field.proto3_optional else ""
        return _LABELS[field.label]

    def _extensions(self, extensions: Any, indent: str, messages: Any) -> Iterator[str]:  # noqa: ANN401 - repeated fields
        inside = {one.name: one for one in messages}
        for field in extensions:
            yield f"{indent}extend {field.extendee} {{"
            yield from self._field(field, indent + "  ", inside)
            yield f"{indent}}}"


def _enum(enum: descriptor_pb2.EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    yield from _option_lines(enum.options, indent + "  ")
    for value in enum.value:
        items = _brackets(_option_items(value.options))
        yield f"{indent}  {value.name} = {value.number}{items};"
    for reserved in enum.reserved_range:
        yield f"{indent}  reserved {_range(reserved.start, reserved.end, MAX_ENUM)};"
    for name in enum.reserved_name:
        yield f"{indent}  reserved {_quoted(name)};"
    yield f"{indent}}}"


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from _option_lines(service.options, "  ")
    for method in service.method:
        takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        yield f"  rpc {method.name} ({takes}) returns ({gives}) {{"
        yield from _option_lines(method.options, "    ")
        yield "  }"
    yield "}"


def _is_group(field: FieldProto) -> bool:
    return field.type == FieldProto.TYPE_GROUP


def _type_name(field: FieldProto) -> str:
    return field.type_name or _TYPE_NAMES[field.type]


def _field_items(field: FieldProto) -> Iterator[str]:
    if field.HasField("default_value"):
        is_text = field.type in (FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES)
        value = field.default_value
        if field.type == FieldProto.TYPE_BYTES:
            value = value.encode().decode("unicode_escape")
        yield f"default = {_quoted(value) if is_text else value}"
    if field.json_name and field.json_name != json_name(field.name):
        yield f"json_name = {_quoted(field.json_name)}"


def _brackets(items: Any) -> str:  # noqa: ANN401 - an iterable of texts
    joined = ", ".join(items)
    return f" [{joined}]" if joined else ""


def _option_lines(options: Message, indent: str) -> Iterator[str]:
    for item in _option_items(options):
        yield f"{indent}option {item};"


def _option_items(options: Message, prefix: str = "") -> Iterator[str]:
    """Yield ``name = value`` for each option that is set."""
    for field, value in options.ListFields():
        if field.is_extension or field.name == "map_entry":
            continue
        if field.name == "uninterpreted_option":
            yield from map(_uninterpreted, value)
        elif field.message_type is not None:
            if not field.is_repeated:
                yield from _option_items(value, f"{prefix}{field.name}.")
        else:
            for one in value if field.is_repeated else [value]:
                yield f"{prefix}{field.name} = {_scalar(field, one)}"


def _scalar(field: FieldDescriptor, value: Any) -> str:  # noqa: ANN401 - of any scalar type
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _uninterpreted(option: descriptor_pb2.UninterpretedOption) -> str:
    name = ".".join(
        f"({part.name_part})" if part.is_extension else part.name_part for part in option.name
    )
    if option.HasField("string_value"):
        value = _quoted(option.string_value.decode("latin-1"))
    elif option.HasField("aggregate_value"):
        value = f"{{ {option.aggregate_value} }}"
    elif option.HasField("identifier_value"):
        value = option.identifier_value
    elif option.HasField("positive_int_value"):
        value = str(option.positive_int_value)
    elif option.HasField("negative_int_value"):
        value = str(option.negative_int_value)
    else:
        value = repr(option.double_value)
    return f"{name} = {value}"


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == most else end}"


def _quoted(text: str) -> str:
    """Return a string literal. Characters above 127 are written as their bytes."""
    shown = []
    for one in text:
        if one in '"\\':
            shown.append(f"\\{one}")
        elif " " <= one <= "~":
            shown.append(one)
        else:
            shown += [f"\\{byte:03o}" for byte in one.encode("utf-8", "replace")]
    return f'"{"".join(shown)}"'
