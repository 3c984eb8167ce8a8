"""The layouts of Kafka's requests, read from kio's generated classes: what ``shapes`` fills.

The broker's own codec is not asked, so that a field it forgot is sent nevertheless.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from kio.index import UnknownEntity, load_entity_schema
from kio.schema.index import api_key_map
from kio.static.constants import EntityType

_LEAST_VERSION_OF_KIO: Final = 3
"""Kafka has dropped Produce before this version, and kio with it; the broker decodes it."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field on the wire. ``tag`` is None unless the field is a tagged one.

    ``nullable`` is about the whole field, ``value_is_nullable`` about the elements of an array.
    """

    name: str
    kafka_type: str
    nested: "Layout | None"
    is_array: bool
    nullable: bool
    value_is_nullable: bool
    tag: int | None


@dataclasses.dataclass(frozen=True)
class Layout:
    """The fields of a message, or of an element of one of its arrays, in their order."""

    fields: tuple[Field, ...]
    flexible: bool

    @property
    def plain(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.tag is None)

    @property
    def tagged(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.tag is not None)


def api_name(key: int) -> str:
    """The name of an API in kio's spelling."""
    return str(api_key_map[key])


@functools.cache
def layout_of(key: int, version: int) -> Layout:
    """The request of that version; of the one before, or the first, where Kafka has no such one."""
    name = api_name(key)
    if name == "produce" and version < _LEAST_VERSION_OF_KIO:
        first = layout_of(key, _LEAST_VERSION_OF_KIO)
        kept = tuple(one for one in first.fields if one.name != "transactional_id")
        return Layout(kept, first.flexible)
    try:
        schema = load_entity_schema(name, version, EntityType.request)
    except UnknownEntity:
        schema = load_entity_schema(name, version - 1, EntityType.request)
    return _layout(schema)


def _layout(schema: Any) -> Layout:  # noqa: ANN401 - a generated dataclass
    return Layout(tuple(map(_field, dataclasses.fields(schema))), bool(schema.__flexible__))


def _field(field: "dataclasses.Field[Any]") -> Field:
    metadata: Mapping[str, Any] = field.metadata
    inner, nullable = _without_none(field.type)
    is_array = typing.get_origin(inner) is tuple
    value_is_nullable = nullable
    if is_array:
        inner, value_is_nullable = _without_none(typing.get_args(inner)[0])
    return Field(
        name=field.name,
        kafka_type=metadata.get("kafka_type", ""),
        nested=_layout(inner) if dataclasses.is_dataclass(inner) else None,
        is_array=is_array,
        nullable=nullable,
        value_is_nullable=value_is_nullable,
        tag=metadata.get("tag"),
    )


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401 - an annotation
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        given = [one for one in typing.get_args(kind) if one is not types.NoneType]
        return given[0], True
    return kind, False
