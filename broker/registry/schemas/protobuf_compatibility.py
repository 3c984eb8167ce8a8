"""Whether data that was written with one Protobuf schema can be read with another: the rules of the
language guide for updates of a message, as Confluent's registry applies them.

Fields are told apart by their numbers, and may come and go. What a number means may not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf import descriptor_pb2

from quorate.broker.registry.schemas.protobuf_schema import FileProto, ProtobufSchema
from quorate.broker.registry.schemas.recursive_comparison import Problems, RecursiveComparison

FieldProto = descriptor_pb2.FieldDescriptorProto
MessageProto = descriptor_pb2.DescriptorProto

_NUMBER: Final = "integer"
_TEXT: Final = "string or bytes"
_MESSAGE: Final = "message"
_MAP: Final = "map"
_KINDS: Final[Mapping[int, str]] = {
    FieldProto.TYPE_INT32: _NUMBER,
    FieldProto.TYPE_INT64: _NUMBER,
    FieldProto.TYPE_UINT32: _NUMBER,
    FieldProto.TYPE_UINT64: _NUMBER,
    FieldProto.TYPE_BOOL: _NUMBER,
    FieldProto.TYPE_ENUM: _NUMBER,
    FieldProto.TYPE_SINT32: "zigzag integer",
    FieldProto.TYPE_SINT64: "zigzag integer",
    FieldProto.TYPE_STRING: _TEXT,
    FieldProto.TYPE_BYTES: _TEXT,
    FieldProto.TYPE_FIXED32: "fixed32",
    FieldProto.TYPE_SFIXED32: "fixed32",
    FieldProto.TYPE_FIXED64: "fixed64",
    FieldProto.TYPE_SFIXED64: "fixed64",
    FieldProto.TYPE_FLOAT: "float",
    FieldProto.TYPE_DOUBLE: "double",
    FieldProto.TYPE_MESSAGE: _MESSAGE,
    FieldProto.TYPE_GROUP: "group",
}
"""What a type is on the wire: types of one kind may be exchanged."""

_Key: TypeAlias = tuple[str, str]


class _Type(NamedTuple):
    """A message, its name without the package of its file, and whether it is of the root file."""

    message: MessageProto
    local_name: str
    is_own: bool


def protobuf_problems(reader: ProtobufSchema, writer: ProtobufSchema) -> Problems:
    """Return why ``reader`` does not read all data of ``writer``."""
    comparison = RecursiveComparison()
    update = _Update(comparison, _types(writer), _types(reader))
    return comparison.run(lambda: update.of(writer.file, reader.file))


class _Update:
    """The update of one schema to another."""

    def __init__(
        self,
        comparison: RecursiveComparison,
        old_types: Mapping[str, _Type],
        new_types: Mapping[str, _Type],
    ) -> None:
        self._comparison = comparison
        self._old_types = old_types
        self._new_types = new_types

    def of(self, old: FileProto, new: FileProto) -> Problems:
        problems = []
        if old.package != new.package:
            problems.append(f"the package was changed from {old.package!r} to {new.package!r}")
        return problems + self._messages(old.message_type, new.message_type, "")

    def _messages(
        self, old: Sequence[MessageProto], new: Sequence[MessageProto], path: str
    ) -> Problems:
        """Compare the messages that a file or a message contains."""
        problems = []
        kept = {one.name: one for one in new}
        for message in old:
            place = f"{path}/{message.name}"
            if message.options.map_entry:
                continue  # It is compared with the field of the map.
            if message.name not in kept:
                problems.append(f"message {place} was removed")
            else:
                problems += self._message(message, kept[message.name], place)
        return problems

    def _message(self, old: MessageProto, new: MessageProto, path: str) -> Problems:
        return [
            *_oneof_problems(old, new, path),
            *self._fields(old, new, path),
            *self._messages(old.nested_type, new.nested_type, path),
        ]

    def _fields(self, old: MessageProto, new: MessageProto, path: str) -> Problems:
        problems = []
        before = {one.number: one for one in old.field}
        after = {one.number: one for one in new.field}
        deleted = _deleted_oneofs(old, new)
        for number, field in before.items():
            place = f"{path}/{number}"
            if number in after:
                problems += self._field(field, after[number], place)
            elif field.label == FieldProto.LABEL_REQUIRED:
                problems.append(f"the required field {place} was removed")
            elif _oneof_of(old, field) not in ("", *deleted):
                problems.append(f"the field {place} was removed from its oneof")
        for number, field in after.items():
            if number not in before and field.label == FieldProto.LABEL_REQUIRED:
                problems.append(f"the required field {path}/{number} was added")
        return problems

    def _field(self, old: FieldProto, new: FieldProto, path: str) -> Problems:
        old_map, new_map = _entry(old, self._old_types), _entry(new, self._new_types)
        before = _MAP if old_map else _KINDS[old.type]
        after = _MAP if new_map else _KINDS[new.type]
        if before != after:
            return [f"the field {path} was changed from {before} to {after}"]
        if old_map and new_map:
            parts = zip(old_map.field, new_map.field, strict=True)
            return [one for part in parts for one in self._field(*part, f"{path}/{part[0].name}")]
        if old.type_name and before == _MESSAGE:
            return [
                *self._named(old.type_name, new.type_name, path),
                *_label_problems(old, new, before, path),
            ]
        return _label_problems(old, new, before, path)

    def _named(self, old_name: str, new_name: str, path: str) -> Problems:
        """Compare the messages that a field had and has."""
        old, new = self._old_types[old_name], self._new_types[new_name]
        if old.local_name != new.local_name:
            return [f"the field {path} was changed from {old.local_name} to {new.local_name}"]
        if old.is_own and new.is_own:
            return []  # They are compared as messages of the file.
        return self._comparison.visit(
            (old_name, new_name), lambda: self._message(old.message, new.message, path)
        )


def _label_problems(old: FieldProto, new: FieldProto, kind: str, path: str) -> Problems:
    """Return the problems of a changed label. Text that becomes repeated is read as one item."""
    if new.label == FieldProto.LABEL_REQUIRED != old.label:
        return [f"the field {path} became required"]
    is_repeated = [one.label == FieldProto.LABEL_REPEATED for one in (old, new)]
    if kind not in (_TEXT, _MESSAGE) and is_repeated[0] != is_repeated[1]:
        return [f"the field {path} was changed between one number and many"]
    return []


def _types(schema: ProtobufSchema) -> dict[str, _Type]:
    """Return all messages that the fields of a schema may have, by their full names."""
    found: dict[str, _Type] = {}
    for file in (schema.file, *schema.imported.values()):
        scope = f".{file.package}" if file.package else ""
        for local, message in _with_names(file.message_type, ""):
            found[f"{scope}.{local}"] = _Type(message, local, file is schema.file)
    return found


def _with_names(messages: Any, prefix: str) -> Iterator[tuple[str, MessageProto]]:  # noqa: ANN401
    for message in messages:
        name = f"{prefix}{message.name}"
        yield name, message
        yield from _with_names(message.nested_type, f"{name}.")


def _entry(field: FieldProto, types: Mapping[str, _Type]) -> MessageProto | None:
    """Return the message of the entries of a map, or None if the field is no map."""
    found = types.get(field.type_name)
    is_map = found is not None and found.message.options.map_entry
    return found.message if found is not None and is_map else None


def _oneof_of(message: MessageProto, field: FieldProto) -> str:
    """Return the name of the oneof that a field is in, or an empty text."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return message.oneof_decl[field.oneof_index].name


def _deleted_oneofs(old: MessageProto, new: MessageProto) -> frozenset[str]:
    """Return the oneofs that are gone with all their fields."""
    kept = {one.number for one in new.field}
    names = {_oneof_of(old, one) for one in old.field} - {one.name for one in new.oneof_decl}
    surviving = {_oneof_of(old, one) for one in old.field if one.number in kept}
    return frozenset(names - surviving)


def _oneof_problems(old: MessageProto, new: MessageProto, path: str) -> Problems:
    """Return a problem for each oneof in which there are fields that were independent before."""
    before = {one.number: _oneof_of(old, one) or f"field {one.number}" for one in old.field}
    groups: dict[str, set[str]] = {}
    for field in new.field:
        oneof = _oneof_of(new, field)
        if oneof and field.number in before:
            groups.setdefault(oneof, set()).add(before[field.number])
    return [
        f"fields that were independent are in the oneof {path}/{oneof}"
        for oneof, origins in groups.items()
        if len(origins) > 1
    ]
