"""Avro schemas as a tree of types, parsed from their JSON.

Names are resolved while a schema is parsed, so a type stands wherever its name did. A type that
contains itself has no such tree, and no Spark type either, so it is refused.

Source: the Avro specification, 1.12.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quorate.spark.errors import ValueSchemaError

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
DEPTH_MAX: Final = 64
"""The deepest nesting of types in a schema."""
TYPES_MAX: Final = 20_000
"""The most types in a schema, with each one counted wherever its name stands. A few names within
each other could otherwise stand for more types than there is memory for."""
DECIMAL_PRECISION_MAX: Final = 38
"""The most digits that a decimal of Spark and of Arrow's 128 bits has."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    aliases: frozenset[str] = frozenset()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type, with what its kind has; the rest is empty."""

    kind: str
    """A primitive type, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or ``union``."""
    logical: str = ""
    """The logical type, if it is a valid one; an invalid one is ignored, as Avro demands."""
    names: frozenset[str] = frozenset()
    """The full name and the aliases of a named type."""
    name: str = ""
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: "AvroType | None" = None
    """The type of the items of an array, or of the values of a map."""
    branches: tuple["AvroType", ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    types: int = 1
    """How many types there are in it, itself included."""

    @property
    def size_min(self) -> int:
        """The smallest number of bytes of a value."""
        if self.kind == "null":
            return 0
        if self.kind == "fixed":
            return self.size
        if self.kind == "record":
            return sum(part.type.size_min for part in self.fields)
        return {"float": 4, "double": 8}.get(self.kind, 1)


@dataclass
class _Parser:
    """Parses one schema. It knows the types that were named so far."""

    named: dict[str, AvroType] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    """The names of the types around the one that is being parsed."""

    def parse(self, schema: Any, space: str, depth: int = 0) -> AvroType:  # noqa: ANN401 - JSON
        if depth > DEPTH_MAX:
            raise ValueSchemaError(f"the Avro schema is nested more than {DEPTH_MAX} levels deep")
        if isinstance(schema, str):
            return AvroType(schema) if schema in PRIMITIVES else self._named(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if not isinstance(schema, dict):
            raise ValueSchemaError(f"{schema!r} is no Avro type")
        kind = schema.get("type")
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            items = self.parse(schema.get(key), space, depth + 1)
            return AvroType(kind, items=items, types=_counted(items))
        if kind in NAMED:
            return self._declared(schema, kind, space, depth)
        if kind in PRIMITIVES:
            return _logical(AvroType(kind), schema)
        return self.parse(kind, space, depth + 1)

    def _named(self, name: str, space: str) -> AvroType:
        full = _full_name(name, space)
        if full in self.open:
            raise ValueSchemaError(
                f"the Avro type {full} contains itself: Spark has no type for that; read the value "
                "as binary, or leave the field out by a schema of your own"
            )
        if full not in self.named:
            raise ValueSchemaError(f"the Avro schema does not define the type {name!r}")
        return self.named[full]

    def _union(self, schema: list[Any], space: str, depth: int) -> AvroType:
        branches = tuple(self.parse(branch, space, depth + 1) for branch in schema)
        if not branches or any(branch.kind == "union" for branch in branches):
            raise ValueSchemaError(f"a union needs branches, which are no unions: {schema!r}")
        return AvroType("union", branches=branches, types=_counted(*branches))

    def _declared(self, schema: Mapping[str, Any], kind: str, space: str, depth: int) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise ValueSchemaError(f"an Avro {kind} has no name: {str(schema)[:80]}")
        full = _full_name(name, schema.get("namespace") or space)
        if full in self.named or full in self.open:
            raise ValueSchemaError(f"the Avro schema defines {full} twice")
        space = full.rpartition(".")[0]
        aliases = (_full_name(alias, space) for alias in schema.get("aliases", ()))
        about = AvroType(kind, name=full, names=frozenset((full, *aliases)))
        self.open.append(full)
        if kind == "fixed":
            declared = _fixed(about, schema)
        elif kind == "enum":
            declared = _enum(about, schema)
        else:
            declared = self._record(about, schema, space, depth)
        self.open.pop()
        self.named[full] = declared
        return declared

    def _record(
        self, about: AvroType, schema: Mapping[str, Any], space: str, depth: int
    ) -> AvroType:
        fields = tuple(
            AvroField(
                part["name"],
                self.parse(part["type"], space, depth + 1),
                frozenset(part.get("aliases", ())),
                "default" in part,
                part.get("default"),
            )
            for part in schema.get("fields", ())
        )
        if repeated := _first_repeated([part.name for part in fields]):
            raise ValueSchemaError(f"{about.name} has two fields {repeated!r}")
        types = _counted(*(part.type for part in fields))
        return AvroType("record", name=about.name, names=about.names, fields=fields, types=types)


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """Parse an Avro schema.

    Args:
        text: the schema in JSON.
        references: the schemas whose named types it uses, those that are used by others first.

    Raises:
        ValueSchemaError: it is no schema that can be read; the message says why.
    """
    parser = _Parser()
    try:
        for reference in references:
            parser.parse(json.loads(reference), "")
        return parser.parse(json.loads(text), "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueSchemaError(f"the Avro schema lacks {error}: {text[:120]!r}") from None
    except RecursionError:
        raise ValueSchemaError("the Avro schema is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, ValueSchemaError):
            raise
        # Avro lets a primitive type stand alone, without the quotes of JSON.
        if text.strip() in PRIMITIVES:
            return AvroType(text.strip())
        raise ValueSchemaError(f"the Avro schema is no JSON ({error}): {text[:120]!r}") from None


def _counted(*parts: AvroType) -> int:
    """Return the number of types in a type with these parts."""
    types = 1 + sum(part.types for part in parts)
    if types > TYPES_MAX:
        raise ValueSchemaError(f"the Avro schema has more than {TYPES_MAX} types")
    return types


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _first_repeated(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)


def _enum(about: AvroType, schema: Mapping[str, Any]) -> AvroType:
    symbols = tuple(schema["symbols"])
    return AvroType(
        "enum",
        name=about.name,
        names=about.names,
        symbols=symbols,
        default_symbol=schema.get("default"),
    )


def _fixed(about: AvroType, schema: Mapping[str, Any]) -> AvroType:
    size = schema["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueSchemaError(f"the Avro type {about.name} has the size {size!r}")
    plain = AvroType("fixed", name=about.name, names=about.names, size=size)
    return _logical(plain, schema)


_LOGICAL_OF: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset(
        {
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "local-timestamp-millis",
            "local-timestamp-micros",
        }
    ),
    "string": frozenset({"uuid"}),
    "bytes": frozenset({"decimal"}),
    "fixed": frozenset({"decimal", "duration", "uuid"}),
}


def _logical(plain: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Return the type with the logical type that the schema gives it."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or logical not in _LOGICAL_OF.get(plain.kind, ()):
        return plain
    if logical != "decimal":
        return replace(plain, logical=logical)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return plain
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        return plain
    return replace(plain, logical=logical, precision=precision, scale=scale)
