"""Whether data that is valid under one JSON Schema is valid under another.

A schema stands for the set of documents that are valid under it, and a reader reads all data of a
writer if the writer's set lies within the reader's. That is decided keyword by keyword, on the safe
side: what cannot be seen to be within counts as incompatible. As in Confluent's registry, a
property that becomes required is no problem if it has a default.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

from quorate.broker.registry.schemas.json_schema import JsonNode, JsonSchema
from quorate.broker.registry.schemas.recursive_comparison import Problems, RecursiveComparison

Json: TypeAlias = Any

_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "object": frozenset({"object"}),
    "array": frozenset({"array"}),
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
}
_ALL: Final = frozenset().union(*_KINDS.values())
_GROUPS: Final = ("anyOf", "oneOf")
_OPAQUE: Final = ("if", "then", "else", "$dynamicRef", "$recursiveRef")
_ANNOTATIONS: Final = frozenset(
    {
        "$id",
        "$schema",
        "$comment",
        "$anchor",
        "$defs",
        "title",
        "description",
        "default",
        "examples",
    }
    | {"definitions", "id", "readOnly", "writeOnly", "deprecated", "format"}
)


def json_problems(reader: JsonSchema, writer: JsonSchema) -> Problems:
    """Return why ``reader`` does not take all data of ``writer``."""
    comparison = RecursiveComparison()
    compare = _Inclusion(comparison).of
    return comparison.run(lambda: compare(_Part(writer.root), _Part(reader.root), "#"))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A schema, or a part of one that holds by itself.

    ``keywords`` is True for the schema without references and combinations, ``kind`` limits it to
    documents of one kind, and ``group`` is the name of a combination of which the part is all.
    """

    node: JsonNode
    keywords: bool = False
    kind: str = ""
    group: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        # Documents live as long as their schema, and only True and False are in several places.
        document = self.node.document
        identity = document if isinstance(document, bool) else id(document)
        return (identity, self.keywords, self.kind, self.group)

    @property
    def document(self) -> Mapping[str, Json]:
        found = self.node.document
        if isinstance(found, bool):
            return {} if found else {"not": {}}
        return found  # type: ignore[no-any-return]

    def inner(self, document: Json) -> "_Part":
        return _Part(self.node.inner(document))


class _Inclusion:
    """Finds out whether the documents of ``old`` are documents of ``new``."""

    def __init__(self, comparison: RecursiveComparison) -> None:
        self._comparison = comparison

    def of(self, old: _Part, new: _Part, path: str) -> Problems:
        return self._comparison.visit((old.key, new.key), partial(self._decide, old, new, path))

    def _decide(self, old: _Part, new: _Part, path: str) -> Problems:
        if old.node.document is False or _is_open(new):
            return []
        if new.node.document is False:
            return [f"{path}: nothing is allowed any more"]
        if not _is_atom(new):
            return [one for atom in _atoms(new) for one in self.of(old, atom, path)]
        if not _is_atom(old):
            return self._any_atom(list(_atoms(old)), new, path)
        if old.group in _GROUPS:
            return [
                problem
                for number, branch in enumerate(old.document[old.group])
                for problem in self.of(old.inner(branch), new, f"{path}/{old.group}/{number}")
            ]
        if new.group in _GROUPS:
            return self._within_group(old, new, path)
        return self._atoms(old, new, path)

    def _any_atom(self, atoms: Sequence[_Part], new: _Part, path: str) -> Problems:
        """Return no problem if one of the conditions of the old schema is enough. Otherwise the
        problems are those of the last one, which has the keywords."""
        problems: Problems = []
        for atom in atoms:
            problems = self.of(atom, new, path)
            if not problems:
                return []
        return problems

    def _within_group(self, old: _Part, new: _Part, path: str) -> Problems:
        branches = [new.inner(branch) for branch in new.document[new.group]]
        if any(not self.of(old, branch, path) for branch in branches):
            return []
        kinds = _kinds(old)
        if old.keywords and len(kinds) > 1 and not old.kind and kinds != _ALL:
            split = [_Part(old.node, keywords=True, kind=kind) for kind in sorted(kinds)]
            return [problem for one in split for problem in self.of(one, new, path)]
        return [f"{path}: no branch of {new.group} takes all that was valid"]

    def _atoms(self, old: _Part, new: _Part, path: str) -> Problems:
        if new.group == "not":
            if old.group != "not":
                return [f"{path}/not: it was added"]
            return self.of(
                new.inner(new.document["not"]), old.inner(old.document["not"]), f"{path}/not"
            )
        if new.group:
            if old.group == new.group and old.document[new.group] == new.document[new.group]:
                return []
            return [f"{path}/{new.group}: it was added or changed"]
        if old.group:
            return [f"{path}: what was valid by {old.group} alone is limited"]
        return [
            *_kind_problems(old, new, path),
            *_value_problems(old, new, path),
            *_number_problems(old, new, path),
            *_size_problems(old, new, path),
            *self._objects(old, new, path),
            *self._arrays(old, new, path),
        ]

    def _objects(self, old: _Part, new: _Part, path: str) -> Problems:
        if "object" not in _kinds(old) & _kinds(new):
            return []
        problems = [*_required_problems(old, new, path), *self._dependencies(old, new, path)]
        names = {**old.document.get("properties", {}), **new.document.get("properties", {})}
        self._comparison.spend(len(names) * (_pattern_count(old) + _pattern_count(new)))
        for name in names:
            before = _property_schemas(old, name)[0]
            for after in _property_schemas(new, name):
                problems += self.of(before, after, f"{path}/properties/{name}")
        patterns = {
            **old.document.get("patternProperties", {}),
            **new.document.get("patternProperties", {}),
        }
        for pattern in patterns:
            problems += self.of(
                _pattern_schema(old, pattern),
                _pattern_schema(new, pattern),
                f"{path}/patternProperties/{pattern}",
            )
        problems += self.of(_additional(old), _additional(new), f"{path}/additionalProperties")
        if "propertyNames" in new.document:
            before = old.inner(old.document.get("propertyNames", True))
            after = new.inner(new.document["propertyNames"])
            problems += self.of(before, after, f"{path}/propertyNames")
        return problems

    def _dependencies(self, old: _Part, new: _Part, path: str) -> Problems:
        problems: Problems = []
        for key in ("dependencies", "dependentRequired", "dependentSchemas"):
            before = old.document.get(key, {})
            for name, after in new.document.get(key, {}).items():
                place = f"{path}/{key}/{name}"
                if name not in before:
                    problems.append(f"{place}: it was added")
                elif isinstance(after, list):
                    if not isinstance(before[name], list) or set(after) - set(before[name]):
                        problems.append(f"{place}: more is required")
                elif isinstance(before[name], list):
                    problems.append(f"{place}: it was changed")
                else:
                    problems += self.of(old.inner(before[name]), new.inner(after), place)
        return problems

    def _arrays(self, old: _Part, new: _Part, path: str) -> Problems:
        if "array" not in _kinds(old) & _kinds(new):
            return []
        before, before_rest = _items(old)
        after, after_rest = _items(new)
        problems = self.of(before_rest, after_rest, f"{path}/items")
        for number in range(max(len(before), len(after))):
            place = f"{path}/items/{number}"
            one = before[number] if number < len(before) else before_rest
            other = after[number] if number < len(after) else after_rest
            problems += self.of(one, other, place)
        if new.document.get("uniqueItems") and not old.document.get("uniqueItems"):
            problems.append(f"{path}/uniqueItems: it was added")
        if "contains" in new.document:
            if "contains" not in old.document:
                return [*problems, f"{path}/contains: it was added"]
            contained = old.inner(old.document["contains"]), new.inner(new.document["contains"])
            problems += self.of(*contained, f"{path}/contains")
        return problems


def _is_open(part: _Part) -> bool:
    """Return whether every document is valid."""
    return not part.group and not (part.document.keys() - _ANNOTATIONS)


def _is_atom(part: _Part) -> bool:
    return part.keywords or bool(part.group)


def _atoms(part: _Part) -> Iterator[_Part]:
    """Yield the conditions of a schema, which hold all together. The keywords come last."""
    document, node = part.document, part.node
    if part.node.document is False:
        yield _Part(node, group="not")
        return
    reference = document.get("$ref")
    if isinstance(reference, str):
        yield _Part(node.referred(reference))
        if not node.follows_siblings:
            return
    for branch in document.get("allOf", ()):
        yield part.inner(branch)
    for group in (*_GROUPS, "not", *_OPAQUE):
        if group in document:
            yield _Part(node, group=group)
    yield _Part(node, keywords=True)


def _kinds(part: _Part) -> frozenset[str]:
    """Return the kinds of the documents that are valid."""
    if part.kind:
        return frozenset({part.kind})
    document = part.document
    values = _values(document)
    if values is not None:
        return frozenset(_kind_of(value) for value in values)
    given = document.get("type")
    if given is None:
        return _ALL
    names = [given] if isinstance(given, str) else given
    return frozenset[str]().union(*(_KINDS[name] for name in names))


def _kind_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case float() if not value.is_integer():
            return "fraction"
    return "integer"


def _values(document: Mapping[str, Json]) -> list[Json] | None:
    """Return the values that are valid at most, or None if they are not listed."""
    if "const" in document:
        return [document["const"]]
    found = document.get("enum")
    return found if isinstance(found, list) else None


def _kind_problems(old: _Part, new: _Part, path: str) -> Problems:
    gone = _kinds(old) - _kinds(new)
    if not gone:
        return []
    return [f"{path}/type: {', '.join(sorted(gone))} is not allowed any more"]


def _value_problems(old: _Part, new: _Part, path: str) -> Problems:
    after = _values(new.document)
    if after is None:
        return []
    before = _values(old.document)
    if before is None:
        return [f"{path}/enum: it was added"]
    allowed = frozenset(map(_text_of, after))
    return [
        f"{path}/enum: {text[:80]} is not allowed any more"
        for text in map(_text_of, before)
        if text not in allowed
    ]


def _text_of(value: Json) -> str:
    """Return a text that equal values have. 1.0 is 1."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True)


def _number_problems(old: _Part, new: _Part, path: str) -> Problems:
    if not {"integer", "fraction"} & _kinds(old) & _kinds(new):
        return []
    problems = []
    for name, sign in (("maximum", 1), ("minimum", -1)):
        before, after = _bound(old.document, name, sign), _bound(new.document, name, sign)
        if after is not None and (before is None or before > after):
            problems.append(f"{path}/{name}: it is narrower")
    step, before_step = new.document.get("multipleOf"), old.document.get("multipleOf")
    if step is not None and (before_step is None or _exact(before_step) % _exact(step)):
        problems.append(f"{path}/multipleOf: it is narrower")
    return problems


def _bound(document: Mapping[str, Json], name: str, sign: int) -> tuple[Fraction, int] | None:
    """Return a bound of which a larger one is wider, or None if there is none."""
    exclusive = document.get(f"exclusive{name.capitalize()}")
    found = []
    if document.get(name) is not None:
        # In draft 4, exclusiveMaximum says of maximum what it is.
        found.append((sign * _exact(document[name]), 0 if exclusive is True else 1))
    if exclusive is not None and not isinstance(exclusive, bool):
        found.append((sign * _exact(exclusive), 0))
    return min(found, default=None)


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


_UPPER: Final = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_LOWER: Final = {"minLength": "string", "minItems": "array", "minProperties": "object"}


def _size_problems(old: _Part, new: _Part, path: str) -> Problems:
    kinds = _kinds(old) & _kinds(new)
    problems = []
    for name, kind in _UPPER.items():
        after = new.document.get(name)
        before = old.document.get(name)
        if kind in kinds and after is not None and (before is None or before > after):
            problems.append(f"{path}/{name}: it is narrower")
    for name, kind in _LOWER.items():
        if kind in kinds and new.document.get(name, 0) > old.document.get(name, 0):
            problems.append(f"{path}/{name}: it is narrower")
    pattern = new.document.get("pattern")
    if "string" in kinds and pattern is not None and pattern != old.document.get("pattern"):
        problems.append(f"{path}/pattern: it was added or changed")
    for name, sign in (("maxContains", 1), ("minContains", -1)):
        after, before = new.document.get(name), old.document.get(name)
        if after is not None and (before is None or sign * before > sign * after):
            problems.append(f"{path}/{name}: it is narrower")
    return problems


def _required_problems(old: _Part, new: _Part, path: str) -> Problems:
    before = frozenset(_names(old.document.get("required")))
    properties = new.document.get("properties", {})
    return [
        f"{path}/required/{name}: it became required and has no default"
        for name in _names(new.document.get("required"))
        if name not in before and not _has_default(new, properties.get(name))
    ]


def _names(found: Json) -> list[str]:
    """Return a list of names; in draft 3, ``required`` was no list."""
    return found if isinstance(found, list) else []


def _has_default(part: _Part, document: Json) -> bool:
    if not isinstance(document, Mapping):
        return False
    if "default" in document:
        return True
    reference = document.get("$ref")
    if not isinstance(reference, str):
        return False
    found = part.node.inner(document).referred(reference).document
    return isinstance(found, Mapping) and "default" in found


def _property_schemas(part: _Part, name: str) -> list[_Part]:
    """Return the schemas that hold for a property, all together."""
    document = part.document
    found = []
    if name in document.get("properties", {}):
        found.append(part.inner(document["properties"][name]))
    found += [
        part.inner(schema)
        for pattern, schema in document.get("patternProperties", {}).items()
        if _matches(pattern, name)
    ]
    return found or [_additional(part)]


def _pattern_schema(part: _Part, pattern: str) -> _Part:
    patterns = part.document.get("patternProperties", {})
    return part.inner(patterns[pattern]) if pattern in patterns else _additional(part)


def _pattern_count(part: _Part) -> int:
    return len(part.document.get("patternProperties", ()))


def _matches(pattern: str, name: str) -> bool:
    """Return whether a pattern of ``patternProperties`` matches. RE2 matches in linear time; a
    pattern that it does not know matches nothing, so that the comparison errs on the safe side.
    """
    import re2

    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _additional(part: _Part) -> _Part:
    """Return the schema of the properties that the schema does not name."""
    document = part.document
    if "additionalProperties" in document:
        return part.inner(document["additionalProperties"])
    return part.inner(document.get("unevaluatedProperties", True))


def _items(part: _Part) -> tuple[list[_Part], _Part]:
    """Return the schemas of the first items, and that of all others."""
    document = part.document
    items = document.get("items", True)
    rest = document.get("unevaluatedItems", True)
    if "prefixItems" in document:
        first = document["prefixItems"]
        return [part.inner(one) for one in first], part.inner(document.get("items", rest))
    if isinstance(items, list):
        rest = document.get("additionalItems", rest)
        return [part.inner(one) for one in items], part.inner(rest)
    return [], part.inner(document.get("items", rest))
