"""Avro schemas: their types, and the canonical text by which equal ones are found.

fastavro checks a schema, and ``avro_types`` are what is compared.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from quorate.broker.registry.schemas.json_texts import canonical_json, load_json
from quorate.common.schema_errors import InvalidSchema

Json: TypeAlias = Any

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_RESERVED: Final = frozenset(
    {
        "type",
        "name",
        "namespace",
        "doc",
        "fields",
        "items",
        "values",
        "symbols",
        "size",
        "default",
        "order",
        "aliases",
    }
)
_ABSENT: Final = object()


@dataclass(eq=False, slots=True)
class AvroType:
    """A type of a schema. ``kind`` is "record", "enum", "fixed", "array", "map", "union", or the
    name of a primitive type.

    A type is equal to nothing but itself, so a pair of types is a key of a comparison.
    """

    kind: str
    name: str = ""
    """The name without its namespace; only of records, enums and fixed."""
    full_name: str = ""
    aliases: frozenset[str] = frozenset()
    """Full names."""
    fields: "list[AvroField]" = field(default_factory=list)
    branches: "list[AvroType]" = field(default_factory=list)
    """The types of a union; for arrays and maps the one type of their items."""
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    """True if an enum has a symbol that stands for unknown ones."""
    size: int = 0


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    has_default: bool
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A valid schema with its canonical text."""

    text: str
    type: AvroType


def parse_avro(text: str, references: Sequence[str] = (), *, normalize: bool = False) -> AvroSchema:
    """Parse a schema. ``references`` are the texts of the schemas whose types it may name; each
    comes after those that it needs itself.

    With ``normalize`` the text has full names, and other properties in alphabetical order.

    Raises:
        InvalidSchema: it is none.
    """
    try:
        return _parsed(text, references, normalize)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def _parsed(text: str, references: Sequence[str], normalize: bool) -> AvroSchema:
    document = _load(text)
    builder = _Builder()
    named: dict[str, Any] = {}
    for each in references:
        other = _load(each)
        _check(other, named)
        builder.build(other, "")
    _check(document, named)
    built = builder.build(document, "")
    canonical = _canonical(document, "", normalize)
    return AvroSchema(canonical_json(canonical), built)


def _load(text: str) -> Json:
    bare = text.strip()
    return bare if bare in PRIMITIVES else load_json(text)  # Avro's own parser takes both.


def _check(document: Json, named: dict[str, Any]) -> None:
    from fastavro.schema import parse_schema

    try:
        # It changes what it is given, and marks what it has parsed.
        parse_schema(deepcopy(document), named_schemas=named, _write_hint=False)
    except RecursionError:
        raise
    except Exception as error:
        # fastavro raises whatever a malformed document causes: KeyError, TypeError and others.
        raise InvalidSchema(f"{type(error).__name__}: {error}") from error


class _Builder:
    """Builds types of documents that fastavro has found valid, and remembers those with names."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def build(self, document: Json, namespace: str) -> AvroType:
        if isinstance(document, str):
            return self._by_name(document, namespace)
        if isinstance(document, list):
            return self._union([self.build(one, namespace) for one in document])
        if not isinstance(document, Mapping):
            raise InvalidSchema(f"{document!r:.80} is no type")
        kind = document.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"{document!r:.80} has no type")
        if kind in ("array", "map"):
            inner = document["items" if kind == "array" else "values"]
            return AvroType(kind, branches=[self.build(inner, namespace)])
        if kind in _NAMED:
            return self._define(kind, document, namespace)
        return self._by_name(kind, namespace)

    def _union(self, branches: list[AvroType]) -> AvroType:
        kinds = [one.full_name or one.kind for one in branches]
        if "union" in kinds or len(set(kinds)) < len(kinds):
            raise InvalidSchema(f"a union has a union, or a type twice: {', '.join(kinds):.200}")
        return AvroType("union", branches=branches)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self._named.get(full_name(name, namespace)) or self._named.get(name)
        if found is None:
            raise InvalidSchema(f"{name!r:.200} is no type that is known here")
        return found

    def _define(self, kind: str, document: Mapping[str, Json], namespace: str) -> AvroType:
        name = full_name(_name(document), document.get("namespace") or namespace)
        inside, _, short = name.rpartition(".")
        if name in self._named:
            raise InvalidSchema(f"{name} is defined twice")
        size = document.get("size", 0)
        if not _is_integer(size) or size < 0:
            raise InvalidSchema(f"the size of {name} is {size!r:.80}")
        made = self._named[name] = AvroType(
            "record" if kind == "error" else kind,
            name=short,
            full_name=name,
            aliases=frozenset(full_name(one, inside) for one in _texts(document, "aliases")),
            symbols=_texts(document, "symbols"),
            has_default=kind == "enum" and "default" in document,
            size=size,
        )
        if made.kind == "record":
            made.fields = [self._field(one, inside) for one in document.get("fields", ())]
            if "fields" not in document or len({one.name for one in made.fields}) < len(
                made.fields
            ):
                raise InvalidSchema(f"record {name} has no fields, or two of one name")
        return made

    def _field(self, document: Mapping[str, Json], namespace: str) -> AvroField:
        made = AvroField(
            _name(document),
            self.build(document["type"], namespace),
            "default" in document,
            frozenset(_texts(document, "aliases")),
        )
        if made.has_default and not fits_default(document["default"], made.type):
            raise InvalidSchema(
                f"the default {json.dumps(document['default'])[:80]} of field {made.name} is not "
                "of its type"
            )
        return made


def _name(document: Mapping[str, Json]) -> str:
    name = document.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidSchema(f"{name!r:.200} is no name")
    return name


def _texts(document: Mapping[str, Json], key: str) -> tuple[str, ...]:
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidSchema(f"{key} is no list of names: {found!r:.80}")
    return tuple(found)


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def fits_default(value: Json, of: AvroType) -> bool:
    """Return whether a value may be the default of a field of that type, as Avro's specification
    has it. The default of a union is of its first branch.
    """
    match of.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if of.kind == "int" else 63
            return _is_integer(value) and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bytes" | "string" | "fixed":
            return isinstance(value, str)
        case "enum":
            return value in of.symbols
        case "array":
            return isinstance(value, list) and all(fits_default(v, of.branches[0]) for v in value)
        case "map":
            return isinstance(value, dict) and all(
                fits_default(v, of.branches[0]) for v in value.values()
            )
        case "union":
            return any(fits_default(value, one) for one in of.branches)
    return isinstance(value, dict) and all(
        fits_default(value[one.name], one.type) if one.name in value else one.has_default
        for one in of.fields
    )


def _is_integer(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# The canonical text: no blanks, attributes in one order, and no type in more words than needed.


def _canonical(document: Json, namespace: str, normalize: bool) -> Json:
    if isinstance(document, str):
        return _canonical_name(document, namespace, normalize)
    if isinstance(document, list):
        return [_canonical(one, namespace, normalize) for one in document]
    kind = document["type"]
    more = _other_properties(document, normalize)
    if kind in _NAMED:
        return _canonical_definition(kind, document, namespace, normalize)
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        return {"type": kind, key: _canonical(document[key], namespace, normalize), **more}
    name = _canonical_name(kind, namespace, normalize)
    return {"type": name, **more} if more else name


def _canonical_name(name: str, namespace: str, normalize: bool) -> str:
    return full_name(name, namespace) if normalize and name not in PRIMITIVES else name


def _canonical_definition(
    kind: str, document: Mapping[str, Json], namespace: str, normalize: bool
) -> Json:
    name = full_name(document["name"], document.get("namespace") or namespace)
    inside, _, short = name.rpartition(".")
    made: dict[str, Json] = {"type": kind, "name": name if normalize else short}
    if not normalize and inside != namespace:
        made["namespace"] = inside
    for key in ("doc", "symbols", "size", "default"):
        if key in document:
            made[key] = document[key]
    if "fields" in document:
        made["fields"] = [_canonical_field(one, inside, normalize) for one in document["fields"]]
    made |= _other_properties(document, normalize)
    if document.get("aliases"):
        made["aliases"] = document["aliases"]
    return made


def _canonical_field(document: Mapping[str, Json], namespace: str, normalize: bool) -> Json:
    made = {"name": document["name"], "type": _canonical(document["type"], namespace, normalize)}
    for key in ("doc", "default", "order", "aliases"):
        value = document.get(key, _ABSENT)
        if value is not _ABSENT and not (key == "order" and value == "ascending"):
            made[key] = value
    return made | _other_properties(document, normalize)


def _other_properties(document: Mapping[str, Json], normalize: bool) -> dict[str, Json]:
    names = [name for name in document if name not in _RESERVED]
    return {name: document[name] for name in (sorted(names) if normalize else names)}
