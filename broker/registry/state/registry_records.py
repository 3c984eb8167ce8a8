"""The records of the topic ``_schemas``, in the format of Confluent's registry, which is JSON.

Keys are written as Confluent's registry writes them, byte for byte, because the topic is compacted
by them. What other registries know and this one does not is kept where it stands and not read.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from quorate.broker.coordinator.shards.coordinator_records import LogRecord

Json: TypeAlias = Any
AVRO: Final = "AVRO"
_CONTENT: Final = ("metadata", "ruleSet")


class Reference(NamedTuple):
    """A schema that another one refers to: the name that is used there, and where it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version of a subject."""

    subject: str
    version: int
    schema_id: int
    text: str
    language: str = AVRO
    references: tuple[Reference, ...] = ()
    more: Mapping[str, Json] = field(default_factory=dict)
    """``metadata`` and ``ruleSet`` of data contracts, which are kept for clients."""
    is_deleted: bool = False
    """Deleted softly: it is found by its id, and no longer under its subject."""

    @property
    def content(self) -> bytes:
        """A digest of everything by which schemas share an id, as Confluent's registry has it."""
        return content_digest(self.language, self.text, self.references, self.more)

    @property
    def guid(self) -> str:
        """The id that is the same in all registries."""
        return str(uuid.UUID(bytes=guid_digest(self.text, self.references, self.more)))


def guid_digest(text: str, references: Sequence[Reference], more: Mapping[str, Json]) -> bytes:
    """Return the MD5 digest that is the GUID of a schema, as Confluent's registry computes it for
    schemas without metadata and rules."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    for name in _CONTENT:
        if more.get(name) is not None:
            digest.update(b"\x01" + json.dumps(more[name], sort_keys=True).encode())
    return digest.digest()


def content_digest(
    language: str, text: str, references: Sequence[Reference], more: Mapping[str, Json]
) -> bytes:
    """Return a digest that only equal schemas have."""
    parts = [language, text, [list(one) for one in references], *(more.get(n) for n in _CONTENT)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


class SchemaKey(NamedTuple):
    subject: str
    version: int


class ConfigKey(NamedTuple):
    """The key of a configuration; without a subject it is the global one."""

    subject: str | None


class ModeKey(NamedTuple):
    """The key of a mode; without a subject it is the global one."""

    subject: str | None


class DeleteSubjectKey(NamedTuple):
    subject: str


class ClearSubjectKey(NamedTuple):
    subject: str | None


class ContextKey(NamedTuple):
    context: str


class IdMarkKey(NamedTuple):
    """The key of the highest ids that were given away. Confluent's registry calls it NOOP, and does
    not look at its value."""


RecordKey: TypeAlias = (
    SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | IdMarkKey
)


def encode_key(key: RecordKey) -> bytes:
    match key:
        case SchemaKey():
            return _json(keytype="SCHEMA", subject=key.subject, version=key.version, magic=1)
        case ConfigKey():
            return _json(keytype="CONFIG", subject=key.subject, magic=0)
        case ModeKey():
            return _json(keytype="MODE", subject=key.subject, magic=0)
        case DeleteSubjectKey():
            return _json(keytype="DELETE_SUBJECT", subject=key.subject, magic=0)
        case ClearSubjectKey():
            return _json(keytype="CLEAR_SUBJECT", subject=key.subject, magic=0)
        case ContextKey():
            return _json(keytype="CONTEXT", tenant="default", context=key.context, magic=0)
        case IdMarkKey():
            return _json(keytype="NOOP", magic=0)


def schema_record(schema: StoredSchema) -> LogRecord:
    value = _json(
        subject=schema.subject,
        version=schema.version,
        id=schema.schema_id,
        schemaType=None if schema.language == AVRO else schema.language,
        references=[one._asdict() for one in schema.references] or None,
        metadata=schema.more.get("metadata"),
        ruleSet=schema.more.get("ruleSet"),
        schema=schema.text,
        deleted=schema.is_deleted,
    )
    return LogRecord(encode_key(SchemaKey(schema.subject, schema.version)), value)


def record(key: RecordKey, value: Mapping[str, Json] | None) -> LogRecord:
    """Return a record; it is a tombstone if ``value`` is None."""
    return LogRecord(encode_key(key), None if value is None else _json(**value))


def decode_key(raw: bytes) -> RecordKey | None:
    """Decode a key. Return None for one of another kind, or of none."""
    found = _object(raw)
    if found is None:
        return None
    subject = found.get("subject")
    if subject is not None and not isinstance(subject, str):
        return None
    match found.get("keytype"):
        case "SCHEMA" if subject is not None and _is_number(found.get("version")):
            return SchemaKey(subject, found["version"])
        case "CONFIG":
            return ConfigKey(subject)
        case "MODE":
            return ModeKey(subject)
        case "DELETE_SUBJECT" if subject is not None:
            return DeleteSubjectKey(subject)
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(subject)
        case "CONTEXT" if isinstance(found.get("context"), str):
            return ContextKey(found["context"])
        case "NOOP":
            return IdMarkKey()
    return None


def decode_value(raw: bytes | None) -> Mapping[str, Json] | None:
    """Decode a value. Return None for a tombstone, and for what is no object."""
    return None if raw is None else _object(raw)


def decode_schema(key: SchemaKey, value: Mapping[str, Json]) -> StoredSchema | None:
    """Return the schema that a value has, or None if the value is malformed."""
    text, schema_id = value.get("schema"), value.get("id")
    language = value.get("schemaType") or AVRO
    references = _references(value.get("references") or [])
    if not isinstance(text, str) or not _is_number(schema_id) or references is None:
        return None
    if not isinstance(language, str):
        return None
    more = {name: value[name] for name in _CONTENT if isinstance(value.get(name), Mapping)}
    return StoredSchema(
        key.subject,
        key.version,
        schema_id,
        text,
        language,
        references,
        more,
        value.get("deleted") is True,
    )


def _references(found: Json) -> tuple[Reference, ...] | None:
    if not isinstance(found, list):
        return None
    references = []
    for one in found:
        if not isinstance(one, Mapping):
            return None
        name, subject, version = one.get("name"), one.get("subject"), one.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not _is_number(version):
            return None
        references.append(Reference(name, subject, version))
    return tuple(references)


def _is_number(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _object(raw: bytes) -> Mapping[str, Json] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None


def _json(**fields: Json) -> bytes:
    """Return an object without blanks, and without the fields that are None."""
    present = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), ensure_ascii=False).encode()
