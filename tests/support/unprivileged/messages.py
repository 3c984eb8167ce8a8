"""Protobuf messages with random values, made from the descriptors: a new field is filled, too."""

import random
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.support.unprivileged.values import WAIT_MS_MAX, number, raw, text, waits

_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}
DEPTH_MAX: Final = 6

Path = tuple[str, ...]


def settable_fields(message: Descriptor, above: Path = ()) -> Iterator[Path]:
    """Every field of the message and of the messages in it."""
    if len(above) >= DEPTH_MAX:
        return
    for field in message.fields:
        path = (*above, field.name)
        yield path
        if field.message_type is not None:
            yield from settable_fields(field.message_type, path)


def random_message(chance: random.Random, kind: Descriptor, must: Path = ()) -> Message:
    """A message in which the field at ``must`` is set for certain, and others perhaps."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        wanted = bool(must) and field.name == must[0]
        if wanted or chance.random() < 0.6:
            _set(chance, message, field, must[1:] if wanted else ())
    return message


def _set(chance: random.Random, message: Any, field: FieldDescriptor, must: Path) -> None:  # noqa: ANN401
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _set_map(chance, message, field)
    elif field.is_repeated:
        values = [_value(chance, field, must) for _ in range(chance.randint(1, 3))]
        getattr(message, field.name).extend(values)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_value(chance, field, must))
    else:
        setattr(message, field.name, _value(chance, field, must))


def _set_map(chance: random.Random, message: Any, field: FieldDescriptor) -> None:  # noqa: ANN401
    assert field.message_type is not None
    entry = field.message_type.fields_by_name
    for _ in range(chance.randint(1, 3)):
        key = _value(chance, entry["key"], ())
        getattr(message, field.name)[key] = _value(chance, entry["value"], ())


def _value(chance: random.Random, field: FieldDescriptor, must: Path) -> Any:  # noqa: ANN401
    if field.message_type is not None:
        return random_message(chance, field.message_type, must)
    if field.cpp_type in _BITS:
        bits, signed = _BITS[field.cpp_type]
        if waits(field.name):
            return chance.randint(0, WAIT_MS_MAX)
        return number(chance, bits, signed=signed)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return chance.choice([*(one.number for one in field.enum_type.values), 99])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.7
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return chance.choice((0.0, -1.0, 1.0, 1e300, float("inf"), float("nan")))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return raw(chance)
    return text(chance)
