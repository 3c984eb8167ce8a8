"""The languages of schemas, and compatibility in both directions between versions."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.registry.schemas.avro_compatibility import avro_problems
from quorate.broker.registry.schemas.avro_schema import AvroSchema, parse_avro
from quorate.broker.registry.schemas.json_compatibility import json_problems
from quorate.broker.registry.schemas.json_schema import JsonSchema, parse_json
from quorate.broker.registry.schemas.protobuf_compatibility import protobuf_problems
from quorate.broker.registry.schemas.protobuf_schema import ProtobufSchema, parse_protobuf
from quorate.broker.registry.schemas.recursive_comparison import Problems
from quorate.common.schema_errors import InvalidSchema

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
LANGUAGES: Final = (JSON, PROTOBUF, AVRO)

CACHED_SCHEMAS_MAX: Final = 512
CACHED_LENGTH_MAX: Final = 32 << 10
"""Larger schemas are not remembered."""

ParsedSchema: TypeAlias = AvroSchema | JsonSchema | ProtobufSchema


class SchemaSource(NamedTuple):
    """The text of a schema in its language, and the texts of those that it refers to.

    The references are by the names that the schema uses for them, and each comes after those that
    it needs itself.
    """

    language: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Compatibility(enum.Enum):
    """What must be readable with what (docs/SCHEMAS.md).

    BACKWARD: the new schema reads data of earlier ones. FORWARD: earlier ones read data of the new
    one. FULL: both. The latest version counts, or with TRANSITIVE all.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class EarlierSchema:
    """A version that a new schema is compared with."""

    version: int
    source: SchemaSource


def parse(source: SchemaSource, *, normalize: bool = False) -> ParsedSchema:
    """Parse a schema.

    Raises:
        InvalidSchema: it is none, or its language is unknown.
    """
    match source.language:
        case "AVRO":
            texts = [text for _, text in source.references]
            return parse_avro(source.text, texts, normalize=normalize)
        case "JSON":
            return parse_json(source.text, dict(source.references), normalize=normalize)
        case "PROTOBUF":
            return parse_protobuf(source.text, dict(source.references))
    raise InvalidSchema(
        f"the schema type {source.language[:80]!r} is unknown: use one of {', '.join(LANGUAGES)}"
    )


@lru_cache(CACHED_SCHEMAS_MAX)
def _parsed_before(source: SchemaSource, normalize: bool) -> ParsedSchema:
    return parse(source, normalize=normalize)


def parsed(source: SchemaSource, *, normalize: bool = False) -> ParsedSchema:
    """Parse as ``parse``, and remember the last schemas: clients ask for the same ones."""
    size = len(source.text) + sum(len(text) for _, text in source.references)
    if size > CACHED_LENGTH_MAX:
        return parse(source, normalize=normalize)
    return _parsed_before(source, normalize)


def is_same(one: ParsedSchema, other: ParsedSchema) -> bool:
    """Return whether two schemas differ at most in how they are written."""
    if isinstance(one, ProtobufSchema) and isinstance(other, ProtobufSchema):
        return one.identity == other.identity
    return type(one) is type(other) and one.text == other.text


def incompatibilities(
    new: ParsedSchema, earlier: Sequence[EarlierSchema], level: Compatibility
) -> Problems:
    """Return why a schema may not follow earlier versions, or nothing if it may.

    ``earlier`` are in the order of their versions; how many of them count is for ``level`` to say.

    Raises:
        SchemaTooComplex: the comparison takes too long.
    """
    counted = earlier if level.is_transitive else earlier[-1:]
    for one in reversed(counted if level is not Compatibility.NONE else ()):
        problems = _with_one(new, one, level)
        if problems:
            return problems
    return []


def _with_one(new: ParsedSchema, earlier: EarlierSchema, level: Compatibility) -> Problems:
    try:
        old = parsed(earlier.source)
    except InvalidSchema as error:
        return [f"version {earlier.version} cannot be parsed, so nothing follows it: {error}"]
    if type(old) is not type(new):
        return [f"version {earlier.version} is {earlier.source.language}, another schema type"]
    problems: Problems = []
    if level.is_backward:
        problems += [
            f"the new schema does not read data of version {earlier.version}: {one}"
            for one in _problems(new, old)
        ]
    if level.is_forward:
        problems += [
            f"version {earlier.version} does not read data of the new schema: {one}"
            for one in _problems(old, new)
        ]
    return problems


def _problems(reader: ParsedSchema, writer: ParsedSchema) -> Problems:
    match reader, writer:
        case AvroSchema(), AvroSchema():
            return avro_problems(reader.type, writer.type)
        case JsonSchema(), JsonSchema():
            return json_problems(reader, writer)
        case ProtobufSchema(), ProtobufSchema():
            return protobuf_problems(reader, writer)
    raise AssertionError("both are of one language")
