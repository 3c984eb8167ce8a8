"""The descriptors of Protobuf schemas: from texts of .proto files, or from a set of descriptors."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from quorate.common.proto_files.proto_linker import link, messages_of, symbols_of
from quorate.common.proto_files.proto_parser import parse_proto
from quorate.common.schema_errors import InvalidSchema
from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.registry_settings import ReferencedSchema

MAIN_FILE: Final = "schema.proto"
"""The name of the file of the schema itself, which nothing imports."""
FileProto: TypeAlias = descriptor_pb2.FileDescriptorProto
_Field = descriptor_pb2.FieldDescriptorProto


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
        return _linked(whole.file)
    files = [_file(reference.name, reference.text) for reference in references]
    files.append(_file(MAIN_FILE, text))
    return _linked([*_well_known(files), *files])


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


def _file(name: str, text: str) -> FileProto:
    try:
        file = parse_proto(name, text)
    except (InvalidSchema, RecursionError) as error:
        raise ValueSchemaError(f"the text {text[:80]!r} is no .proto file: {error}") from None
    for place, message in messages_of(file):
        if group := next((one for one in message.field if one.type == _Field.TYPE_GROUP), None):
            raise ValueSchemaError(
                f"field {group.name} of the Protobuf message {place} is a group, which is not "
                "supported"
            )
    return file


def _linked(files: Sequence[FileProto]) -> descriptor_pb2.FileDescriptorSet:
    """Return the files with all names resolved.

    Raises:
        ValueSchemaError: they do not fit together. Protobuf's own library would end the process on
            some files, such as one with a default of a repeated field.
    """
    try:
        symbols = symbols_of({file.name: file for file in files})
        for file in files:
            link(file, symbols)
    except InvalidSchema as error:
        raise ValueSchemaError(f"the Protobuf schema does not fit together: {error}") from None
    return descriptor_pb2.FileDescriptorSet(file=files)


def _well_known(
    files: Sequence[FileProto],
) -> Iterator[FileProto]:
    """Yield the imported files that every Protobuf library brings along."""
    given = {file.name for file in files}
    missing = {name for file in files for name in file.dependency} - given
    for name in sorted(missing):
        yield from _with_dependencies(name, given)


def _with_dependencies(name: str, given: set[str]) -> Iterator[FileProto]:
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
    file = FileProto()
    found.CopyToProto(file)
    for dependency in file.dependency:
        yield from _with_dependencies(dependency, given)
    yield file
