"""JSON Schemas: parsing, references between them, and the canonical text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from quorate.broker.registry.schemas.json_texts import canonical_json, load_json
from quorate.common.schema_errors import InvalidSchema

if TYPE_CHECKING:
    from referencing._core import Resolver

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True, eq=False)
class JsonNode:
    """A schema, or one inside of it: its document, and what finds other schemas from there."""

    document: Json
    """A mapping, True or False."""
    resolver: "Resolver[Json]"
    follows_siblings: bool
    """True if keywords beside ``$ref`` count, which is so from draft 2019-09 on."""

    def inner(self, document: Json) -> "JsonNode":
        """Return a schema that is inside of this one."""
        return JsonNode(document, _inside(self.resolver, document), self.follows_siblings)

    def referred(self, reference: str) -> "JsonNode":
        """Return the schema that ``$ref`` names.

        Raises:
            InvalidSchema: there is none.
        """
        from referencing.exceptions import Unresolvable

        try:
            found = self.resolver.lookup(reference)
        except (Unresolvable, ValueError, TypeError, AttributeError) as error:
            raise InvalidSchema(f"$ref {reference!r:.200} leads nowhere: {error}") from None
        if not isinstance(found.contents, Mapping | bool):
            raise InvalidSchema(f"$ref {reference!r:.200} leads to what is no schema")
        return JsonNode(found.contents, found.resolver, self.follows_siblings)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A valid schema with its canonical text."""

    text: str
    root: JsonNode


def parse_json(
    text: str, references: Mapping[str, str] | None = None, *, normalize: bool = False
) -> JsonSchema:
    """Parse a schema. ``references`` are the texts of other schemas, by the names that ``$ref``
    uses. With ``normalize`` the keys of the text are in alphabetical order.

    Raises:
        InvalidSchema: it is none.
    """
    try:
        return _parsed(text, references or {}, normalize)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def _parsed(text: str, references: Mapping[str, str], normalize: bool) -> JsonSchema:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7, specification_with

    document = _load(text)
    validator = validator_for(document, default=Draft7Validator)
    try:
        validator.check_schema(document)
    except SchemaError as error:
        raise InvalidSchema(f"at {error.json_path}: {error.message:.500}") from None
    registry: Registry[Json] = Registry()
    default = DRAFT7
    if isinstance(document, Mapping):
        default = specification_with(str(document.get("$schema", "")), default=DRAFT7)
    for name, other in {**references, "": text}.items():
        loaded = document if not name else _load(other)
        resource = Resource.from_contents(loaded, default_specification=default)
        registry = registry.with_resource(name, resource)
        if resource.id():
            registry = registry.with_resource(str(resource.id()), resource)
    root = JsonNode(document, _inside(registry.resolver(), document), _follows(validator))
    _check_references(root)
    return JsonSchema(canonical_json(document, sort_keys=normalize), root)


def _load(text: str) -> Json:
    document = load_json(text)
    if not isinstance(document, Mapping | bool):
        raise InvalidSchema("a schema is an object, true or false")
    return document


def _follows(validator: type) -> bool:
    from jsonschema.validators import Draft201909Validator, Draft202012Validator

    return validator in (Draft201909Validator, Draft202012Validator)


def _inside(resolver: "Resolver[Json]", document: Json) -> "Resolver[Json]":
    """Return the resolver for what is inside of a document, which may have an ``$id``."""
    from referencing.jsonschema import DRAFT7

    if not isinstance(document, Mapping) or not isinstance(document.get("$id"), str):
        return resolver
    return resolver.in_subresource(DRAFT7.create_resource(document))


def _check_references(root: JsonNode) -> None:
    """Follow each reference once.

    Raises:
        InvalidSchema: one leads nowhere.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node.document) in seen or not isinstance(node.document, Mapping):
            continue
        seen.add(id(node.document))
        reference = node.document.get("$ref")
        if isinstance(reference, str):
            waiting.append(node.referred(reference))
        waiting.extend(node.inner(each) for each in _subschemas(node.document))


_ONE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS: Final = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)


def _subschemas(document: Mapping[str, Json]) -> Iterator[Json]:
    for key in _ONE:
        if isinstance(document.get(key), Mapping):
            yield document[key]
    for key in _LISTS:
        if isinstance(document.get(key), Sequence):
            yield from document[key]
    for key in _MAPS:
        if isinstance(document.get(key), Mapping):
            yield from document[key].values()
