"""Protobuf schemas: .proto files as text, or their descriptors in base64, as Confluent's clients
send them."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from quorate.broker.registry.schemas.protobuf_printer import proto_text
from quorate.common.proto_files.proto_linker import link, messages_of, symbols_of
from quorate.common.proto_files.proto_parser import json_name, parse_proto
from quorate.common.schema_errors import InvalidSchema

FileProto = descriptor_pb2.FileDescriptorProto

_ROOT: Final = "schema.proto"
_IMPORTS_MAX: Final = 1_000
_CONFLUENT: Final = "confluent_kafka.schema_registry."
_BUILT_IN: Final[Mapping[str, str]] = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in (
            "any",
            "api",
            "descriptor",
            "duration",
            "empty",
            "field_mask",
            "source_context",
            "struct",
            "timestamp",
            "type",
            "wrappers",
        )
    },
    "confluent/meta.proto": f"{_CONFLUENT}confluent.meta_pb2",
    "confluent/types/decimal.proto": f"{_CONFLUENT}confluent.types.decimal_pb2",
}
"""The files that clients import without naming a reference, and the modules that have them."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A valid schema.

    ``text`` is the .proto file, or base64 if it has options that cannot be written as text here.
    ``file`` is its descriptor, with all names resolved, and ``imported`` those of the files that it
    imports, directly or not.
    """

    text: str
    file: FileProto
    imported: Mapping[str, FileProto]
    given: FileProto | None = None
    """The descriptor as the client made it, if it has options that ``file`` has not."""

    @property
    def identity(self) -> str:
        """What equal schemas have in common, however they are written."""
        return _in_base64(_bare(self.given or self.file))

    @property
    def serialized(self) -> str:
        """The descriptor in base64, which clients ask for by ``format=serialized``."""
        return _in_base64(self.given or self.file)


def parse_protobuf(text: str, references: Mapping[str, str] | None = None) -> ProtobufSchema:
    """Parse a schema. ``references`` are the texts of the files that it imports, and of those that
    they import, by the names of the imports.

    Raises:
        InvalidSchema: it is none, or a file that is imported is missing.
    """
    try:
        return _parsed(text, references or {})
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def _parsed(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    root = _ROOT
    while root in references:
        root = f"_{root}"
    given = _descriptor(text)
    printed = text if given is None else _printed(given)
    imported = _Files(references).linked(parse_proto(root, printed))
    file = imported.pop(root)
    file.name = "" if given is None else given.name
    if given is None or _bare(file) == _bare(given):
        return ProtobufSchema(printed, file, imported)
    return ProtobufSchema(_in_base64(given), file, imported, given)


def _descriptor(text: str) -> FileProto | None:
    """Return the descriptor that a text is in base64, or None if it is none.

    Raises:
        InvalidSchema: it is damaged.
    """
    compact = text.strip()
    try:
        decoded = base64.b64decode(compact, validate=True)
        file = FileProto.FromString(decoded) if compact else None
    except (binascii.Error, ValueError, DecodeError):
        return None
    if file is not None:
        if not file.IsInitialized():
            raise InvalidSchema("the descriptor lacks required fields")
        _check_texts(file)
    return file


def _printed(given: FileProto) -> str:
    """Return the text of a descriptor that a client has made. Only what the text says is used: it
    has no descriptor that a compiler would not make.

    Raises:
        InvalidSchema: it is one of those.
    """
    try:
        return proto_text(given)
    except (KeyError, ValueError, IndexError) as error:
        raise InvalidSchema(f"the descriptor is damaged: {error!r:.200}") from None


def _check_texts(message: Message) -> None:
    """Refuse names that are not UTF-8, which protobuf lets through in its own descriptors.

    Raises:
        InvalidSchema: there is one.
    """
    for field, value in message.ListFields():
        for one in value if field.is_repeated else [value]:
            if field.message_type is not None:
                _check_texts(one)
            elif field.type == FieldDescriptor.TYPE_STRING and not isinstance(one, str):
                raise InvalidSchema("a name in the descriptor is not UTF-8")


class _Files:
    """A file and those that it imports, directly or not, by the names of the imports."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references
        self._files: dict[str, FileProto] = {}
        self._open: set[str] = set()

    def linked(self, root: FileProto) -> dict[str, FileProto]:
        """Return all files with resolved names; the root comes last.

        Raises:
            InvalidSchema: one is missing, or is no schema.
        """
        self._add(root)
        symbols = symbols_of(self._files)
        for file in self._files.values():
            link(file, symbols)
        return self._files

    def _add(self, file: FileProto) -> None:
        self._open.add(file.name)
        for name in file.dependency:
            if name in self._open:
                raise InvalidSchema(f"{name!r:.200} imports itself, perhaps by way of others")
            if name not in self._files:
                self._add(self._imported(name))
        self._open.remove(file.name)
        self._files[file.name] = file

    def _imported(self, name: str) -> FileProto:
        if len(self._files) > _IMPORTS_MAX:
            raise InvalidSchema(f"more than {_IMPORTS_MAX} files are imported")
        if name in self._references:
            text = self._references[name]
            given = _descriptor(text)
            return parse_proto(name, text if given is None else _printed(given))
        if name not in _BUILT_IN:
            raise InvalidSchema(f"{name!r:.200} is imported, and no reference has it")
        file = FileProto()
        import_module(_BUILT_IN[name]).DESCRIPTOR.CopyToProto(file)
        return file


def _bare(file: FileProto) -> FileProto:
    """Return a descriptor without what says nothing about the data."""
    bare = FileProto()
    bare.CopyFrom(file)
    bare.name = ""
    bare.ClearField("source_code_info")
    if bare.syntax == "proto2":
        bare.ClearField("syntax")
    messages = [message for _, message in messages_of(bare)]
    fields = [field for one in messages for field in (*one.field, *one.extension)]
    for field in (*bare.extension, *fields):
        if field.json_name == json_name(field.name):
            field.ClearField("json_name")
    return bare


def _in_base64(file: FileProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()
