"""Protobuf schemas: .proto files as text, or their descriptors in base64, as Confluent's clients
send them. protobuf's own library resolves names and finds what is inconsistent."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from quorate.broker.registry.schemas.protobuf_parser import json_name, parse_proto
from quorate.broker.registry.schemas.protobuf_printer import proto_text
from quorate.broker.registry.schemas.schema_errors import InvalidSchema

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

    @property
    def identity(self) -> str:
        """What equal schemas have in common, however they are written."""
        return _in_base64(_bare(self.file))

    @property
    def serialized(self) -> str:
        """The descriptor in base64, which clients ask for by ``format=serialized``."""
        return _in_base64(self.file)


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
    file, is_text = _read(root, text)
    original_name = file.name
    file.name = root
    linked = _Linker(references).link(file)
    imported = {one.name: one for one in linked[:-1]}
    file = linked[-1]
    if not is_text:
        printed = proto_text(file)
        text = printed if _says_the_same(printed, file, references) else _in_base64(file)
    file.name = original_name
    return ProtobufSchema(text, file, imported)


def _says_the_same(printed: str, file: FileProto, references: Mapping[str, str]) -> bool:
    try:
        again = _Linker(references).link(parse_proto(file.name, printed))[-1]
    except InvalidSchema:
        return False
    return _bare(again) == _bare(file)


def _read(name: str, text: str) -> tuple[FileProto, bool]:
    """Return the descriptor of a file, and whether it was given as text."""
    compact = text.strip()
    try:
        decoded = base64.b64decode(compact, validate=True)
        if compact:
            return FileProto.FromString(decoded), False
    except (binascii.Error, ValueError, DecodeError):
        pass  # It is no base64, so it is text.
    return parse_proto(name, text), True


class _Linker:
    """Resolves the names in files together with those that they import."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references
        self._pool = descriptor_pool.DescriptorPool()
        self._linked: dict[str, FileProto | None] = {}

    def link(self, file: FileProto) -> list[FileProto]:
        """Return all files that ``file`` needs, and itself as the last one."""
        self._add(file)
        return [one for one in self._linked.values() if one is not None]

    def _add(self, file: FileProto) -> None:
        name = file.name
        self._linked[name] = None
        for needed in file.dependency:
            self._add_import(needed, name)
        try:
            self._pool.Add(file)
            made = FileProto()
            self._pool.FindFileByName(name).CopyToProto(made)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidSchema(
                f"{error}".partition("descriptor pool: ")[2] or f"{error}"
            ) from None
        # Files are in the order in which they were completed.
        del self._linked[name]
        self._linked[name] = made

    def _add_import(self, name: str, importer: str) -> None:
        if name in self._linked:
            if self._linked[name] is None:
                raise InvalidSchema(f"{name!r:.200} imports itself, by way of {importer!r:.200}")
            return
        if len(self._linked) > _IMPORTS_MAX:
            raise InvalidSchema(f"more than {_IMPORTS_MAX} files are imported")
        if name in self._references:
            file, _ = _read(name, self._references[name])
            file.name = name
        elif name in _BUILT_IN:
            file = FileProto()
            import_module(_BUILT_IN[name]).DESCRIPTOR.CopyToProto(file)
        else:
            raise InvalidSchema(f"{name!r:.200} is imported, and no reference has it")
        self._add(file)


def _bare(file: FileProto) -> FileProto:
    """Return a descriptor without what says nothing about the data."""
    bare = FileProto()
    bare.CopyFrom(file)
    bare.name = ""
    bare.ClearField("source_code_info")
    if bare.syntax == "proto2":
        bare.ClearField("syntax")
    fields = [*bare.extension, *(field for one in _messages(bare) for field in one.field)]
    fields += [field for one in _messages(bare) for field in one.extension]
    for field in fields:
        if field.json_name == json_name(field.name):
            field.ClearField("json_name")
    return bare


def _messages(file: FileProto) -> Iterator[descriptor_pb2.DescriptorProto]:
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        waiting.extend(message.nested_type)
        yield message


def _in_base64(file: FileProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()
