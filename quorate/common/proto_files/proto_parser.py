"""Parses .proto files into the descriptors that protoc makes of them, with names not resolved.

``protobuf_linker`` resolves the names, and finds what is inconsistent.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2

from quorate.common.proto_files.proto_options import set_option
from quorate.common.proto_files.proto_tokens import NUMBER, TEXT, Tokens, integer
from quorate.common.schema_errors import InvalidSchema

FieldProto = descriptor_pb2.FieldDescriptorProto
MAX_FIELD: Final = (1 << 29) - 1
MAX_ENUM: Final = (1 << 31) - 1
_NESTED_MAX: Final = 64

SCALARS: Final[Mapping[str, "descriptor_pb2.FieldDescriptorProto.Type.ValueType"]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS: Final[Mapping[str, "descriptor_pb2.FieldDescriptorProto.Label.ValueType"]] = {
    "optional": FieldProto.LABEL_OPTIONAL,
    "required": FieldProto.LABEL_REQUIRED,
    "repeated": FieldProto.LABEL_REPEATED,
}


def parse_proto(name: str, source: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file.

    Raises:
        InvalidSchema: it does not follow the grammar. The message names the line.
    """
    return _Parser(name, source).file()


class _Parser:
    """Parses one file by recursive descent."""

    def __init__(self, name: str, source: str) -> None:
        self._tokens = Tokens(source)
        self._file = descriptor_pb2.FileDescriptorProto(name=name)
        self._is_proto3 = False
        self._depth = 0

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        file, tokens = self._file, self._tokens
        self._syntax()
        while tokens.next.text:
            match tokens.next.text:
                case ";":
                    tokens.take()
                case "import":
                    self._import()
                case "package":
                    tokens.take()
                    file.package = self._name()
                    tokens.expect(";")
                case "option":
                    self._option(file.options)
                case "message":
                    self._message(file.message_type.add())
                case "enum":
                    self._enum(file.enum_type.add())
                case "extend":
                    self._extend(file.extension, file.message_type)
                case "service":
                    self._service(file.service.add())
                case _:
                    raise tokens.error("expected a declaration")
        return file

    def _syntax(self) -> None:
        tokens = self._tokens
        if tokens.skip("syntax"):
            tokens.expect("=")
            syntax = tokens.text_value().decode("utf-8", "replace")
            if syntax not in ("proto2", "proto3"):
                raise InvalidSchema(f"the syntax {syntax[:80]!r} is unknown: use proto2 or proto3")
            self._is_proto3 = syntax == "proto3"
            if self._is_proto3:
                self._file.syntax = syntax
            tokens.expect(";")
        elif tokens.skip("edition"):
            tokens.expect("=")
            edition = tokens.text_value().decode("utf-8", "replace")
            number = descriptor_pb2.Edition.DESCRIPTOR.values_by_name.get(f"EDITION_{edition}")
            if number is None:
                raise InvalidSchema(f"the edition {edition[:80]!r} is unknown")
            self._file.syntax = "editions"
            self._file.edition = descriptor_pb2.Edition.Value(number.name)
            tokens.expect(";")

    def _import(self) -> None:
        file, tokens = self._file, self._tokens
        tokens.expect("import")
        if tokens.skip("public"):
            file.public_dependency.append(len(file.dependency))
        elif tokens.skip("weak"):
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(tokens.text_value().decode("utf-8", "replace"))
        tokens.expect(";")

    def _name(self) -> str:
        """Return a name with dots, which may begin with one."""
        tokens = self._tokens
        begin = "." if tokens.skip(".") else ""
        parts = [tokens.word("a name")]
        while tokens.skip("."):
            parts.append(tokens.word("a name"))
        return begin + ".".join(parts)

    # Messages.

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._tokens.expect("message")
        message.name = self._tokens.word("the name of a message")
        self._message_body(message)

    def _message_body(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        self._depth += 1
        if self._depth > _NESTED_MAX:
            raise tokens.error(f"messages are nested more than {_NESTED_MAX} deep")
        tokens.expect("{")
        while not tokens.skip("}"):
            self._message_element(message)
        self._depth -= 1
        _add_synthetic_oneofs(message)

    def _message_element(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        match tokens.next.text:
            case ";":
                tokens.take()
            case "message":
                self._message(message.nested_type.add())
            case "enum":
                self._enum(message.enum_type.add())
            case "extend":
                self._extend(message.extension, message.nested_type)
            case "option":
                self._option(message.options)
            case "oneof":
                self._oneof(message)
            case "reserved":
                tokens.take()
                self._reserved(message, MAX_FIELD)
            case "extensions":
                tokens.take()
                self._extensions(message)
            case _:
                self._field(message.field.add(), message.nested_type)

    def _field(self, field: FieldProto, nested: Any) -> None:  # noqa: ANN401 - a repeated field
        """Parse a field. ``nested`` gets the message of a group, or of the entries of a map."""
        tokens = self._tokens
        label = tokens.next.text
        if label in _LABELS:
            tokens.take()
            field.proto3_optional = self._is_proto3 and label == "optional"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        field.label = _LABELS.get(label, FieldProto.LABEL_OPTIONAL)
        if tokens.next.text == "group":
            self._group(field, nested)
            return
        if tokens.next.text == "map":
            tokens.take()
            if tokens.skip("<"):
                self._map(field, nested)
                return
            self._type(field, self._name_after("map"))
        else:
            self._type(field, self._name())
        self._rest_of_field(field)

    def _name_after(self, first: str) -> str:
        """Return the rest of a name whose first word was taken already."""
        parts = [first]
        while self._tokens.skip("."):
            parts.append(self._tokens.word("a name"))
        return ".".join(parts)

    def _type(self, field: FieldProto, name: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _rest_of_field(self, field: FieldProto) -> None:
        tokens = self._tokens
        field.name = tokens.word("the name of a field")
        tokens.expect("=")
        field.number = self._integer(1, MAX_FIELD)
        field.json_name = json_name(field.name)
        self._bracketed(lambda parts: self._field_option(field, parts))
        tokens.expect(";")

    def _field_option(self, field: FieldProto, parts: list[str]) -> None:
        tokens = self._tokens
        if parts == ["default"]:
            field.default_value = self._default(field)
        elif parts == ["json_name"]:
            field.json_name = tokens.text_value().decode("utf-8", "replace")
        else:
            set_option(field.options, parts, tokens)

    def _default(self, field: FieldProto) -> str:
        tokens = self._tokens
        if tokens.next.kind == TEXT:
            value = tokens.text_value()
            if field.type == FieldProto.TYPE_BYTES:
                return value.decode("latin-1").encode("unicode_escape").decode()
            return value.decode("utf-8", "replace")
        sign = "-" if tokens.skip("-") else ""
        token = tokens.take()
        number = integer(token.text) if token.kind == NUMBER else None
        return sign + (token.text if number is None else str(number))

    def _group(self, field: FieldProto, nested: Any) -> None:  # noqa: ANN401 - a repeated field
        tokens = self._tokens
        tokens.expect("group")
        message = nested.add(name=tokens.word("the name of a group"))
        field.name = message.name.lower()
        field.json_name = json_name(field.name)
        field.type = FieldProto.TYPE_GROUP
        field.type_name = message.name
        tokens.expect("=")
        field.number = self._integer(1, MAX_FIELD)
        self._bracketed(lambda parts: self._field_option(field, parts))
        self._message_body(message)

    def _map(self, field: FieldProto, nested: Any) -> None:  # noqa: ANN401 - a repeated field
        tokens = self._tokens
        entry = nested.add()
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), start=1):
            part = entry.field.add(
                name=name, number=number, label=FieldProto.LABEL_OPTIONAL, json_name=name
            )
            self._type(part, self._name())
            tokens.expect("," if name == "key" else ">")
        field.label = FieldProto.LABEL_REPEATED
        self._rest_of_field(field)
        entry.name = map_entry_name(field.name)
        field.type_name = entry.name

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("oneof")
        number = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=tokens.word("the name of a oneof"))
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            if tokens.next.text == "option":
                self._option(oneof.options)
                continue
            if tokens.next.text in _LABELS:
                raise tokens.error("a field of a oneof has no label")
            field = message.field.add(oneof_index=number)
            self._field(field, message.nested_type)

    def _reserved(self, holder: Any, most: int) -> None:  # noqa: ANN401 - a message or an enum
        """Parse reserved numbers or names, of which names may be words or strings."""
        tokens = self._tokens
        while True:
            if tokens.next.kind == TEXT:
                holder.reserved_name.append(tokens.text_value().decode("utf-8", "replace"))
            elif tokens.next.kind == NUMBER or tokens.next.text == "-":
                self._range(holder.reserved_range.add(), most)
            else:
                holder.reserved_name.append(tokens.word("a reserved number or name"))
            if not tokens.skip(","):
                break
        tokens.expect(";")

    def _range(self, made: Any, most: int) -> None:  # noqa: ANN401 - one of three kinds of range
        """Parse a range of numbers. The end of one of fields is exclusive."""
        least = -MAX_ENUM - 1 if most == MAX_ENUM else 1
        exclusive = 0 if most == MAX_ENUM else 1
        made.start = self._integer(least, most)
        made.end = made.start + exclusive
        if self._tokens.skip("to"):
            end = most if self._tokens.skip("max") else self._integer(least, most)
            made.end = end + exclusive

    def _extensions(self, message: descriptor_pb2.DescriptorProto) -> None:
        ranges = []
        while True:
            made = message.extension_range.add()
            self._range(made, MAX_FIELD)
            ranges.append(made)
            if not self._tokens.skip(","):
                break
        options = descriptor_pb2.ExtensionRangeOptions()
        self._bracketed(lambda parts: set_option(options, parts, self._tokens))
        for made in ranges:
            if options.ByteSize():
                made.options.CopyFrom(options)
        self._tokens.expect(";")

    def _extend(self, extensions: Any, nested: Any) -> None:  # noqa: ANN401 - repeated fields
        self._tokens.expect("extend")
        extended = self._name()
        self._tokens.expect("{")
        while not self._tokens.skip("}"):
            if not self._tokens.skip(";"):
                self._field(extensions.add(extendee=extended), nested)

    # Enums and services.

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("enum")
        enum.name = tokens.word("the name of an enum")
        tokens.expect("{")
        while not tokens.skip("}"):
            match tokens.next.text:
                case ";":
                    tokens.take()
                case "option":
                    self._option(enum.options)
                case "reserved":
                    tokens.take()
                    self._reserved(enum, MAX_ENUM)
                case _:
                    value = enum.value.add(name=tokens.word("the name of a value"))
                    self._enum_value(value)

    def _enum_value(self, value: descriptor_pb2.EnumValueDescriptorProto) -> None:
        self._tokens.expect("=")
        value.number = self._integer(-MAX_ENUM - 1, MAX_ENUM)
        self._bracketed(lambda parts: set_option(value.options, parts, self._tokens))
        self._tokens.expect(";")

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("service")
        service.name = tokens.word("the name of a service")
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            if tokens.next.text == "option":
                self._option(service.options)
            else:
                self._method(service.method.add())

    def _method(self, method: descriptor_pb2.MethodDescriptorProto) -> None:
        tokens = self._tokens
        tokens.expect("rpc")
        method.name = tokens.word("the name of a method")
        method.input_type, streams = self._method_type()
        if streams:
            method.client_streaming = True
        tokens.expect("returns")
        method.output_type, streams = self._method_type()
        if streams:
            method.server_streaming = True
        if tokens.skip(";"):
            return
        tokens.expect("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                self._option(method.options)

    def _method_type(self) -> tuple[str, bool]:
        tokens = self._tokens
        tokens.expect("(")
        streams = tokens.skip("stream")
        if streams and tokens.next.text == ")":
            name, streams = "stream", False
        else:
            name = self._name()
        tokens.expect(")")
        return name, streams

    # Options and numbers.

    def _option(self, options: Any) -> None:  # noqa: ANN401 - the options of anything
        self._tokens.expect("option")
        parts = self._option_name()
        self._tokens.expect("=")
        set_option(options, parts, self._tokens)
        self._tokens.expect(";")

    def _bracketed(self, take: Callable[[list[str]], None]) -> None:
        """Parse options in brackets, if there are any. ``take`` parses the value of one."""
        if not self._tokens.skip("["):
            return
        while True:
            parts = self._option_name()
            self._tokens.expect("=")
            take(parts)
            if not self._tokens.skip(","):
                break
        self._tokens.expect("]")

    def _option_name(self) -> list[str]:
        """Return the parts of a name, of which extensions are in parentheses."""
        tokens = self._tokens
        parts = []
        while True:
            if tokens.skip("("):
                parts.append(f"({self._name()})")
                tokens.expect(")")
            else:
                parts.append(tokens.word("the name of an option"))
            if not tokens.skip("."):
                return parts

    def _integer(self, least: int, most: int) -> int:
        sign = -1 if self._tokens.skip("-") else 1
        found = integer(self._tokens.next.text) if self._tokens.next.kind == NUMBER else None
        if found is None or not least <= sign * found <= most:
            raise self._tokens.error(f"expected a number from {least} to {most}")
        self._tokens.take()
        return sign * found


def _add_synthetic_oneofs(message: descriptor_pb2.DescriptorProto) -> None:
    """Add the oneofs that stand for optional fields of proto3; they come after all others."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def json_name(name: str) -> str:
    """Return the name that protoc gives a field in JSON."""
    first, *others = name.split("_")
    return first + "".join(one[:1].upper() + one[1:] for one in others)


def map_entry_name(name: str) -> str:
    """Return the name that protoc gives the message of a map's entries."""
    return "".join(one[:1].upper() + one[1:] for one in name.split("_")) + "Entry"
