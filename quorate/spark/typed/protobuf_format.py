"""Keys and values in Protobuf, decoded by ptars into the columns of the reader's message.

Protobuf resolves schemas by field numbers, so every record is decoded by the reader's message,
whatever version of it the writer had. Only that it is the same message is checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from pyspark.sql.types import DataType, StructType

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.protobuf_text import descriptors_of, message_of
from quorate.spark.typed.protobuf_types import message_type
from quorate.spark.typed.registry_settings import PROTOBUF, RegisteredSchema, RegistrySettings


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """Protobuf by one reader's message."""

    files: bytes
    """A FileDescriptorSet."""
    message: str
    registry: RegistrySettings | None = None
    """The registry that knows the writers' schemas. None: records have no prefix."""
    wanted: StructType | None = None
    """The fields that are decoded, if not all are."""

    @property
    def spark_type(self) -> DataType:
        """The type of the decoded column."""
        return message_type(self.descriptor()) if self.wanted is None else self.wanted

    def selected(self, wanted: DataType) -> "ProtobufFormat":
        """Return the format that decodes only the fields that ``wanted`` has."""
        assert isinstance(wanted, StructType)
        return replace(self, wanted=wanted)

    def descriptor(self) -> Descriptor:
        """Return the message, with its unwanted fields left out."""
        files = descriptor_pb2.FileDescriptorSet.FromString(self.files)
        if self.wanted is not None:
            _leave_out(files, self.message, set(self.wanted.names))
        return message_of(files, self.message)


def protobuf_format(
    files: descriptor_pb2.FileDescriptorSet, message: str | None, registry: RegistrySettings | None
) -> ProtobufFormat:
    """Return the format of a message: the named one, or the first.

    Raises:
        ValueSchemaError: there is no such message, or Spark has no type for it.
    """
    found = message_of(files, message)
    message_type(found)
    return ProtobufFormat(files.SerializeToString(), found.full_name, registry)


def descriptors(schema: RegisteredSchema) -> descriptor_pb2.FileDescriptorSet:
    """Return the files of a registered schema.

    Raises:
        ValueSchemaError: it is no schema of Protobuf, or one that cannot be read.
    """
    if schema.type.upper() != PROTOBUF:
        raise ValueSchemaError(f"schema {schema.schema_id} is of type {schema.type}, not PROTOBUF")
    return descriptors_of(schema.text, schema.references)


def _leave_out(files: descriptor_pb2.FileDescriptorSet, name: str, wanted: set[str]) -> None:
    """Remove the fields of a message that are not wanted; what is unknown is skipped fast."""
    message = next(one for one in _messages(files) if one[0] == name)[1]
    kept = [field for field in message.field if field.name in wanted]
    used = sorted({field.oneof_index for field in kept if field.HasField("oneof_index")})
    oneofs = [message.oneof_decl[index] for index in used]
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    del message.field[:], message.oneof_decl[:]
    message.field.extend(kept)
    message.oneof_decl.extend(oneofs)


def _messages(
    files: descriptor_pb2.FileDescriptorSet,
) -> Iterator[tuple[str, descriptor_pb2.DescriptorProto]]:
    """Yield all messages with their full names."""
    todo = [(file.package, message) for file in files.file for message in file.message_type]
    while todo:
        space, message = todo.pop()
        name = ".".join(filter(None, (space, message.name)))
        yield name, message
        todo += [(name, nested) for nested in message.nested_type]
