"""The descriptors of Protobuf schemas: from the text of .proto files, or from a set of descriptors.

Only what says how bytes are decoded is taken from a text: messages, fields and enums. Options,
services and extensions are not.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.registry_settings import ReferencedSchema

MAIN_FILE: Final = "schema.proto"
"""The name of the file of the schema itself, which nothing imports."""
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final[Mapping[str, Any]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _Field.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS: Final[Mapping[str, Any]] = {
    "REQUIRED": _Field.LABEL_REQUIRED,
    "OPTIONAL": _Field.LABEL_OPTIONAL,
    "REPEATED": _Field.LABEL_REPEATED,
}


def descriptors_of(
    text: str, references: Sequence[ReferencedSchema] = ()
) -> descriptor_pb2.FileDescriptorSet:
    """Return the files of a schema, those that are imported first; the last is the schema itself.

    Args:
        text: the text of a .proto file, or a FileDescriptorSet in base64.
        references: the files that it imports, by the names that it imports them by.

    Raises:
        ValueSchemaError: it is neither, or imports what is not there.
    """
    if (whole := _decoded_set(text)) is not None:
        return whole
    files = [_file(reference.name, reference.text) for reference in references]
    files.append(_file(MAIN_FILE, text))
    return descriptor_pb2.FileDescriptorSet(file=[*_well_known(files), *files])


def message_of(files: descriptor_pb2.FileDescriptorSet, name: str | None) -> Descriptor:
    """Return a message of the files by its full name, or the first one of the last file.

    Raises:
        ValueSchemaError: there is no such message, or the files do not fit together.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError) as error:
        raise ValueSchemaError(f"the Protobuf schema does not fit together: {error}") from None
    last = files.file[-1]
    if name is None:
        if not last.message_type:
            raise ValueSchemaError("the Protobuf schema has no message")
        name = ".".join(filter(None, (last.package, last.message_type[0].name)))
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = ", ".join(sorted(_names(last.message_type, last.package)))
        raise ValueSchemaError(
            f"the Protobuf schema has no message {name!r}; it has {known}"
        ) from None


def message_at(files: descriptor_pb2.FileDescriptorSet, path: Sequence[int]) -> str | None:
    """Return the full name of the message at a path of indexes; None if there is none.

    The path is the one that Confluent's serializers write before a record: the index of a message
    in the file, of a message in that one, and so on.
    """
    last = files.file[-1]
    names = [last.package] if last.package else []
    messages = last.message_type
    for index in path:
        if not 0 <= index < len(messages):
            return None
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names) if path else None


def path_of(message: Descriptor) -> list[int]:
    """Return the path of indexes of a message, as in `message_at`."""
    if message.containing_type is not None:
        parent = message.containing_type
        nested = [one.name for one in parent.nested_types]
        return [*path_of(parent), nested.index(message.name)]
    return [list(message.file.message_types_by_name).index(message.name)]


def _names(messages: Iterable[descriptor_pb2.DescriptorProto], space: str) -> Iterator[str]:
    for message in messages:
        name = ".".join(filter(None, (space, message.name)))
        if not message.options.map_entry:
            yield name
            yield from _names(message.nested_type, name)


def _decoded_set(text: str) -> descriptor_pb2.FileDescriptorSet | None:
    """Return the files if the text is a FileDescriptorSet in base64."""
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(raw)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return files if files.file else None


def _file(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    # The parser takes half a second to import.
    from proto_schema_parser import ast
    from proto_schema_parser.parser import Parser

    try:
        parsed = Parser().parse(text)
    except Exception as error:  # noqa: BLE001 - the parser fails in many ways over a wrong text
        raise ValueSchemaError(f"the text {text[:80]!r} is no .proto file: {error}") from None
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax=parsed.syntax or "proto2")
    for element in parsed.file_elements:
        if isinstance(element, ast.Package):
            file.package = element.name
        elif isinstance(element, ast.Import):
            file.dependency.append(element.name)
        elif isinstance(element, ast.Message):
            _Message(file.message_type.add(), file.syntax).fill(element)
        elif isinstance(element, ast.Enum):
            _fill_enum(file.enum_type.add(), element)
    return file


class _Message:
    """Fills the descriptor of a message."""

    def __init__(self, message: descriptor_pb2.DescriptorProto, syntax: str) -> None:
        self._message = message
        self._syntax = syntax
        self._optional: list[descriptor_pb2.FieldDescriptorProto] = []

    def fill(self, parsed: Any) -> None:  # noqa: ANN401 - the parser's types
        from proto_schema_parser import ast

        self._message.name = parsed.name
        for element in parsed.elements:
            if isinstance(element, ast.Field):
                self._field(element)
            elif isinstance(element, ast.MapField):
                self._map(element)
            elif isinstance(element, ast.OneOf):
                self._oneof(element)
            elif isinstance(element, ast.Message):
                _Message(self._message.nested_type.add(), self._syntax).fill(element)
            elif isinstance(element, ast.Enum):
                _fill_enum(self._message.enum_type.add(), element)
            elif isinstance(element, ast.Group):
                raise ValueSchemaError(
                    f"field {element.name} of the Protobuf message {parsed.name} is a group, which "
                    "is not supported"
                )
        # The oneofs of optional fields come behind all others.
        for field in self._optional:
            field.oneof_index = len(self._message.oneof_decl)
            self._message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, parsed: Any) -> None:  # noqa: ANN401 - the parser's types
        from proto_schema_parser import ast

        index = len(self._message.oneof_decl)
        self._message.oneof_decl.add(name=parsed.name)
        for part in parsed.elements:
            if isinstance(part, ast.Field):
                self._field(part).oneof_index = index

    def _field(self, parsed: Any) -> descriptor_pb2.FieldDescriptorProto:  # noqa: ANN401
        cardinality = parsed.cardinality.value if parsed.cardinality else "OPTIONAL"
        field = self._message.field.add(
            name=parsed.name, number=parsed.number, label=_LABELS[cardinality]
        )
        _set_type(field, parsed.type)
        if cardinality == "OPTIONAL" and parsed.cardinality and self._syntax == "proto3":
            field.proto3_optional = True
            self._optional.append(field)
        return field

    def _map(self, parsed: Any) -> None:  # noqa: ANN401 - the parser's types
        """Add the field, and the message of its entries, which a map stands for."""
        name = "".join(part.capitalize() for part in parsed.name.split("_")) + "Entry"
        entry = self._message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, (part, type_) in enumerate(
            (("key", parsed.key_type), ("value", parsed.value_type)), 1
        ):
            _set_type(entry.field.add(name=part, number=number, label=_Field.LABEL_OPTIONAL), type_)
        field = self._message.field.add(
            name=parsed.name, number=parsed.number, label=_Field.LABEL_REPEATED
        )
        field.type_name = name


def _set_type(field: descriptor_pb2.FieldDescriptorProto, type_: str) -> None:
    if type_ in _SCALARS:
        field.type = _SCALARS[type_]
    else:
        # Whether it is a message or an enum, and where it is, the descriptor pool finds out.
        field.type_name = type_


def _fill_enum(enum: descriptor_pb2.EnumDescriptorProto, parsed: Any) -> None:  # noqa: ANN401
    from proto_schema_parser import ast

    enum.name = parsed.name
    for element in parsed.elements:
        if isinstance(element, ast.EnumValue):
            enum.value.add(name=element.name, number=element.number)
        elif isinstance(element, ast.Option) and element.name == "allow_alias":
            enum.options.allow_alias = True


def _well_known(
    files: Sequence[descriptor_pb2.FileDescriptorProto],
) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """Yield the imported files that every Protobuf library brings along."""
    given = {file.name for file in files}
    missing = {name for file in files for name in file.dependency} - given
    for name in sorted(missing):
        yield from _with_dependencies(name, given)


def _with_dependencies(name: str, given: set[str]) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    if name in given:
        return
    given.add(name)
    # Importing these registers their files.
    from google.protobuf import (  # noqa: F401
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    try:
        found = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        raise ValueSchemaError(
            f"the Protobuf schema imports {name!r}, which is not among its references"
        ) from None
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    for dependency in file.dependency:
        yield from _with_dependencies(dependency, given)
    yield file
