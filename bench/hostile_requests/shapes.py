"""The worst requests of one version of an API, made from its layout: which array, blob or section
of tagged fields is as large as the frame allows, and what its elements are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bench.hostile_requests.layouts import Field, Layout, api_name, layout_of
from bench.hostile_requests.values import FLAVOURS, KINDS, NAME_BYTES_MAX, Kind, Value
from bench.hostile_requests.writing import (
    Element,
    encode,
    length,
    many,
    split_at,
    tags,
    uvarint,
)

_INNER: Final = 1_000
"""Elements of the inner arrays of a "square" request: many of many."""
_TAGS_OF_AN_ELEMENT: Final = 20
_LONG_CLIENT_ID: Final = b"c" * NAME_BYTES_MAX


@dataclass(frozen=True)
class Parts:
    """A request without its size and the fixed part of its header."""

    body: bytes
    header_tags: bytes = b"\0"
    client_id: bytes = b"hostile"


Make = Callable[[int], Parts]
"""Fills a number of bytes as well as it can."""


@dataclass(frozen=True)
class Shape:
    """``is_large``: it grows with the frame; otherwise it is one small request."""

    name: str
    make: Make
    is_large: bool = True


def shapes_of(key: int, version: int) -> list[Shape]:
    """Every shape of that version, in the order of its fields."""
    layout = layout_of(key, version)
    found = [shape for path, one in _growing(layout) for shape in _of_field(key, layout, path, one)]
    return [*found, *_of_message(layout), *(_of_tags(layout) if layout.flexible else ())]


def _growing(layout: Layout, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Every array and blob, with its path."""
    for one in layout.plain:
        here = (*path, one.name)
        if one.is_array or one.kafka_type in ("bytes", "records"):
            yield here, one
        if one.nested is not None and one.is_array:
            yield from _growing(one.nested, here)


def _of_field(key: int, layout: Layout, path: tuple[str, ...], one: Field) -> Iterator[Shape]:
    name = ".".join(path)
    flavours = FLAVOURS.get(api_name(key), ({},))
    if not one.is_array:
        yield Shape(f"{name}:blob", lambda budget: _blob(layout, path, budget))
        return
    for number, given in enumerate(flavours):
        suffix = f"-{number}" if len(flavours) > 1 else ""
        for kind in KINDS:
            yield Shape(f"{name}:{kind}{suffix}", _filled(layout, path, one, kind, 1, 0, given))
    if one.nested is not None and any(inner.is_array for inner in one.nested.plain):
        inner = round(_INNER ** (1 / _depth(one.nested)))
        yield Shape(f"{name}:square", _filled(layout, path, one, "distinct", inner, 0, {}))
    if one.nested is not None and one.nested.flexible:
        tagged = _filled(layout, path, one, "real", 1, _TAGS_OF_AN_ELEMENT, {})
        yield Shape(f"{name}:tagged", tagged)
    yield Shape(f"{name}:claim", lambda budget: _claim(layout, path, budget))


def _depth(layout: Layout) -> int:
    """Return how many levels of arrays an element has below it."""
    return max(
        (
            1 + (0 if one.nested is None else _depth(one.nested))
            for one in layout.plain
            if one.is_array
        ),
        default=0,
    )


def _filled(
    layout: Layout,
    path: tuple[str, ...],
    one: Field,
    kind: Kind,
    inner: int,
    tags_each: int,
    given: Mapping[str, Value],
) -> Make:
    def make(budget: int) -> Parts:
        before, after = split_at(layout, path, given)
        element = Element(kind=kind, inner=inner, tags=tags_each, given=given)
        room = budget - len(before) - len(after)
        return Parts(before + many(one, layout.flexible, element, room) + after)

    return make


def _blob(layout: Layout, path: tuple[str, ...], budget: int) -> Parts:
    before, after = split_at(layout, path, {})
    count = max(0, budget - len(before) - len(after) - 5)
    return Parts(before + length(count, layout.flexible) + bytes(count) + after)


def _claim(layout: Layout, path: tuple[str, ...], budget: int) -> Parts:
    """Make an array that claims one element for each byte that follows; zeros fill the frame."""
    before, _ = split_at(layout, path, {})
    count = max(0, budget - len(before) - 5)
    return Parts(before + length(count, layout.flexible) + bytes(count))


def _of_message(layout: Layout) -> Iterator[Shape]:
    """All fields at once, and what is no request at all."""
    for kind in KINDS:
        if kind not in ("real", "unknown"):
            yield Shape(f"all:{kind}", _whole(layout, kind), is_large=False)
    whole = _whole(layout, "real")(0).body
    yield Shape("client-id:long", lambda _: Parts(whole, client_id=_LONG_CLIENT_ID), is_large=False)
    yield Shape("body:zeros", lambda budget: Parts(bytes(budget)))
    yield Shape("body:ones", lambda budget: Parts(b"\x01" * budget))


def _whole(layout: Layout, kind: Kind) -> Make:
    def make(_: int) -> Parts:
        element = Element(kind=kind)
        body = b"".join(encode(one, "", layout.flexible, element) for one in layout.plain)
        return Parts(body + (b"\0" if layout.flexible else b""))

    return make


def _of_tags(layout: Layout) -> Iterator[Shape]:
    whole = _whole(layout, "real")(0).body
    bare = whole[:-1]
    yield Shape("header-tags:same", lambda budget: Parts(whole, header_tags=_same_tags(budget)))
    yield Shape("header-tags:large", lambda budget: Parts(whole, header_tags=_large_tag(budget)))
    yield Shape("tags:same", lambda budget: Parts(bare + _same_tags(budget)))
    yield Shape("tags:rising", lambda budget: Parts(bare + tags(min(budget // 4, 1 << 16))))
    yield Shape("tags:large", lambda budget: Parts(bare + _large_tag(budget)))
    yield Shape("tags:nested", lambda budget: Parts(bare + _nested_tags(budget)))
    for one in layout.tagged:
        yield Shape(f"tag-{one.name}:large", _known_tag(bare, one))


def _same_tags(budget: int) -> bytes:
    """Make a section of empty tagged fields with the same number, so many that they fill
    ``budget``."""
    count = max(1, (budget - 5) // 2)
    return uvarint(count) + b"\x63\0" * count


def _large_tag(budget: int) -> bytes:
    size = max(1, budget - 11)
    return b"\x01\x63" + uvarint(size) + bytes(size)


def _nested_tags(budget: int) -> bytes:
    """One field with a section of fields in it, as a message inside would have."""
    inner = _same_tags(budget - 11)
    return b"\x01\x63" + uvarint(len(inner)) + inner


def _known_tag(bare: bytes, one: Field) -> Make:
    """A field that the schema has, again and again, as long as it may be."""
    value = length(NAME_BYTES_MAX, True) + b"x" * NAME_BYTES_MAX
    field = uvarint(one.tag or 0) + uvarint(len(value)) + value
    return lambda budget: Parts(bare + _repeated(field, max(1, (budget - 5) // len(field))))


def _repeated(field: bytes, count: int) -> bytes:
    return uvarint(count) + field * count
