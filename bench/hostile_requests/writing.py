"""Writes a request by its layout, with one array or blob in it as large as can be."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bench.hostile_requests.layouts import Field, Layout
from bench.hostile_requests.values import (
    FIXED,
    NAME_BYTES_MAX,
    Kind,
    Value,
    extreme,
    pack,
    packing,
    real,
)
from quorate.broker.kafka.wire.primitives import append_uvarint

DISTINCT_MAX: Final = 1 << 20
"""Distinct names are written one by one, and a broker refuses more elements than these."""
_NAME_TOKEN: Final = b"h0000000"
_NUMBER_TOKEN: Final = b"\x5a\xa5\x5b\xb5"


def uvarint(value: int) -> bytes:
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


def length(count: int, flexible: bool, legacy: str = ">i") -> bytes:
    """The length of an array, of bytes, or with legacy ">h" of a string; -1: null."""
    return uvarint(count + 1) if flexible else struct.pack(legacy, count)


@dataclass
class Element:
    """The way in which the elements of an array are written.

    ``inner`` is the number of elements of each array inside, ``tags`` the number of tagged fields.
    """

    kind: Kind = "real"
    inner: int = 1
    tags: int = 0
    given: Mapping[str, Value] = field(default_factory=dict)
    numbered: bool = False
    """Whether a number, and not a name, is to differ from element to element."""
    token: bytes = b""
    """The bytes that mark the place where each element is to have another value."""


def split_at(
    layout: Layout, path: tuple[str, ...], given: Mapping[str, Value], parent: str = ""
) -> tuple[bytes, bytes]:
    """Return the bytes before and behind the field at ``path``; the arrays around it have one
    element.

    With an empty path the whole message is before.
    """
    before, after = bytearray(), bytearray()
    out = before
    for one in layout.plain:
        if not path or one.name != path[0]:
            out += encode(one, parent, layout.flexible, Element(given=given))
        elif len(path) == 1:
            out = after
        else:
            assert one.nested is not None
            inner = split_at(one.nested, path[1:], given, one.name)
            out += length(1, layout.flexible) + inner[0]
            out = after
            out += inner[1]
    if layout.flexible:
        out += b"\0"
    return bytes(before), bytes(after)


def encode(one: Field, parent: str, flexible: bool, element: Element) -> bytes:
    """One field as a whole."""
    if not one.is_array:
        return _value(one, parent, flexible, element)
    if element.kind == "least":
        return length(-1 if one.nullable else 0, flexible)
    return (
        length(element.inner, flexible) + _value(one, one.name, flexible, element) * element.inner
    )


def entity(layout: Layout, parent: str, element: Element) -> bytes:
    """A message, or an element that has fields."""
    out = bytearray()
    for one in layout.plain:
        out += encode(one, parent, layout.flexible, element)
    if layout.flexible:
        out += tags(element.tags)
    return bytes(out)


def tags(count: int, *, rising: bool = True) -> bytes:
    """A section of that many empty tagged fields, of different numbers or of one."""
    out = bytearray(uvarint(count))
    for number in range(count):
        out += uvarint(10_000 + number if rising else 99) + b"\0"
    return bytes(out)


def many(one: Field, flexible: bool, element: Element, budget: int) -> bytes:
    """The array ``one`` with as many elements as fit into ``budget`` bytes, its length included."""
    sample = _value(one, one.name, flexible, element)
    if element.kind == "distinct" and not element.token:
        element.numbered = True
        sample = _value(one, one.name, flexible, element)
    count = max(1, (budget - 5) // len(sample))
    if not element.token:
        return length(count, flexible) + sample * count
    count = min(count, DISTINCT_MAX)
    before, _, after = sample.partition(element.token)
    is_number = element.token == _NUMBER_TOKEN
    spelled = (n.to_bytes(4, "big") if is_number else b"%08x" % n for n in range(count))
    return length(count, flexible) + before + (after + before).join(spelled) + after


def _value(one: Field, parent: str, flexible: bool, element: Element) -> bytes:
    if one.nested is not None:
        if one.is_array or not one.nullable:
            return entity(one.nested, one.name, element)
        if element.kind == "least":
            return b"\xff"
        return b"\x01" + entity(one.nested, one.name, element)
    if packing(one.kafka_type) is not None:
        return _number(one, parent, element)
    if one.kafka_type == "uuid":
        return bytes(16)
    return _text(one, parent, flexible, element)


def _number(one: Field, parent: str, element: Element) -> bytes:
    if element.kind in ("max", "min") and one.kafka_type != "bool":
        return pack(one.kafka_type, extreme(one.kafka_type, element.kind))
    packed = pack(one.kafka_type, _real(one, parent, element))
    if element.numbered and not element.token and len(packed) == len(_NUMBER_TOKEN):
        element.token = packed = _NUMBER_TOKEN
    return packed


def _text(one: Field, parent: str, flexible: bool, element: Element) -> bytes:
    is_name = one.kafka_type == "string" and one.name not in FIXED
    value = _real(one, parent, element)
    raw = value.encode() if isinstance(value, str) else value
    if element.kind == "least" or raw is None:
        raw = None if one.value_is_nullable else b""
    elif is_name and element.kind == "unknown":
        raw = b"no-such"
    elif is_name and (element.kind == "long" or (element.kind == "distinct" and not element.token)):
        raw = _name(element)
    assert raw is None or isinstance(raw, bytes), one.name
    legacy = ">h" if one.kafka_type == "string" else ">i"
    return length(-1 if raw is None else len(raw), flexible, legacy) + (raw or b"")


def _name(element: Element) -> bytes:
    """A name in which the number of the element will stand, or a long one beside it."""
    name = b"other" if element.token else _NAME_TOKEN
    element.token = _NAME_TOKEN
    return name.ljust(NAME_BYTES_MAX, b"x") if element.kind == "long" else name


def _real(one: Field, parent: str, element: Element) -> Value:
    return element.given.get(one.name, real(parent, one.name, one.kafka_type))
