"""The state of the registry: subjects with their versions, ids, configurations and modes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.state.registry_records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdMarkKey,
    ModeKey,
    RecordKey,
    Reference,
    SchemaKey,
    StoredSchema,
    decode_key,
    decode_schema,
    decode_value,
)
from quorate.broker.registry.subjects import DEFAULT_CONTEXT, Subject, relative_to

Json: TypeAlias = Any

GLOBAL_CONTEXT: Final = ":.__GLOBAL:"
"""The name under which Confluent's registry keeps what holds for all contexts."""
DEFAULT_COMPATIBILITY: Final = "BACKWARD"
READWRITE: Final = "READWRITE"


class RegistryState:
    """What the records so far say. ``apply`` is the only way to change it."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[SchemaKey, None]] = {}
        self._by_content: dict[tuple[str, bytes], dict[SchemaKey, None]] = {}
        self._by_guid: dict[str, dict[SchemaKey, None]] = {}
        self._referrers: dict[SchemaKey, dict[SchemaKey, None]] = {}
        self._configs: dict[str | None, Mapping[str, Json]] = {}
        self._modes: dict[str | None, str] = {}
        self._contexts: dict[str, None] = {DEFAULT_CONTEXT: None}
        self._max_ids: dict[str, int] = {}

    def apply(self, log_record: LogRecord) -> None:
        """Take one record into account. Records of unknown kinds are passed over."""
        key = decode_key(log_record.key)
        if key is not None:
            self._apply(key, decode_value(log_record.value))

    def _apply(self, key: RecordKey, value: Mapping[str, Json] | None) -> None:
        match key:
            case SchemaKey():
                self._apply_schema(key, value)
            case ConfigKey():
                _put(self._configs, key.subject, value)
            case ModeKey():
                mode = None if value is None else value.get("mode")
                _put(self._modes, key.subject, mode if isinstance(mode, str) else None)
            case DeleteSubjectKey() if value is not None:
                self._delete_softly(key.subject, value.get("version"))
            case ContextKey():
                _put(self._contexts, key.context, None if value is None else ())
            case IdMarkKey() if value is not None and isinstance(value.get("maxIds"), Mapping):
                for context, schema_id in value["maxIds"].items():
                    self._note_id(context, schema_id)
            case ClearSubjectKey():
                pass  # What it clears has tombstones of its own.

    def _apply_schema(self, key: SchemaKey, value: Mapping[str, Json] | None) -> None:
        self._remove(key)
        schema = None if value is None else decode_schema(key, value)
        if schema is None:
            return
        context = Subject.parse(key.subject).context
        self._subjects.setdefault(key.subject, {})[key.version] = schema
        self._by_id.setdefault((context, schema.schema_id), {})[key] = None
        self._by_content.setdefault((context, schema.content), {})[key] = None
        self._by_guid.setdefault(schema.guid, {})[key] = None
        for reference in schema.references:
            self._referrers.setdefault(target_of(key.subject, reference), {})[key] = None
        self._contexts.setdefault(context, None)
        self._note_id(context, schema.schema_id)

    def _remove(self, key: SchemaKey) -> None:
        versions = self._subjects.get(key.subject, {})
        schema = versions.pop(key.version, None)
        if schema is None:
            return
        if not versions:
            del self._subjects[key.subject]
        context = Subject.parse(key.subject).context
        _discard(self._by_id, (context, schema.schema_id), key)
        _discard(self._by_content, (context, schema.content), key)
        _discard(self._by_guid, schema.guid, key)
        for reference in schema.references:
            _discard(self._referrers, target_of(key.subject, reference), key)

    def _delete_softly(self, subject: str, until: Json) -> None:
        if not isinstance(until, int):
            return
        versions = self._subjects.get(subject, {})
        for version, schema in versions.items():
            if version <= until:
                versions[version] = replace(schema, is_deleted=True)

    def _note_id(self, context: str, schema_id: Json) -> None:
        if isinstance(schema_id, int):
            self._max_ids[context] = max(self._max_ids.get(context, 0), schema_id)

    # Subjects and versions.

    def subjects(self, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Return the subjects that have versions; ``deleted`` counts softly deleted ones."""
        return [
            subject
            for subject, versions in sorted(self._subjects.items())
            if any(_counts(one, deleted, deleted_only) for one in versions.values())
        ]

    def versions(
        self, subject: str, *, deleted: bool = False, deleted_only: bool = False
    ) -> list[StoredSchema]:
        """Return the versions of a subject in their order."""
        versions = self._subjects.get(subject, {})
        return [
            versions[number]
            for number in sorted(versions)
            if _counts(versions[number], deleted, deleted_only)
        ]

    def version(self, key: SchemaKey) -> StoredSchema | None:
        """Return a version, even if it is deleted softly."""
        return self._subjects.get(key.subject, {}).get(key.version)

    def referrers(self, key: SchemaKey, *, deleted: bool) -> list[StoredSchema]:
        """Return the versions that refer to a version."""
        found = (self.version(one) for one in self._referrers.get(key, ()))
        return [one for one in found if one is not None and (deleted or not one.is_deleted)]

    # Ids.

    def uses_of_id(self, context: str, schema_id: int) -> list[StoredSchema]:
        """Return all versions that have an id, even if they are deleted softly."""
        return self._all(self._by_id.get((context, schema_id), {}))

    def uses_of_content(self, context: str, content: bytes) -> list[StoredSchema]:
        """Return all versions with a content, see ``StoredSchema.content``."""
        return self._all(self._by_content.get((context, content), {}))

    def uses_of_guid(self, guid: str) -> list[StoredSchema]:
        return self._all(self._by_guid.get(guid, {}))

    def _all(self, keys: Mapping[SchemaKey, None]) -> list[StoredSchema]:
        found = (self.version(key) for key in keys)
        return [one for one in found if one is not None]

    @property
    def max_ids(self) -> Mapping[str, int]:
        """The highest id that was ever given away, by context."""
        return self._max_ids

    def contexts(self) -> list[str]:
        return sorted(self._contexts)

    # Configurations and modes. The more specific one holds: subject, context, all contexts.

    def config(self, subject: str | None) -> Mapping[str, Json] | None:
        """Return the configuration that a subject has of its own, or the global one for None."""
        return self._configs.get(subject)

    def mode(self, subject: str | None) -> str | None:
        """Return the mode that a subject has of its own, or the global one for None."""
        return self._modes.get(subject)

    def config_in_scope(self, subject: str | None) -> dict[str, Json]:
        """Return the configuration that holds for a subject."""
        merged: dict[str, Json] = {"compatibilityLevel": DEFAULT_COMPATIBILITY}
        for scope in reversed(list(_scopes(subject))):
            merged |= self._configs.get(scope) or {}
        return merged

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that holds for a subject."""
        found = (self._modes.get(scope) for scope in _scopes(subject))
        return next((mode for mode in found if mode is not None), READWRITE)


def target_of(subject: str, reference: Reference) -> SchemaKey:
    """Return the version that a reference of a schema of that subject names."""
    return SchemaKey(relative_to(subject, reference.subject), reference.version)


def _scopes(subject: str | None) -> Iterator[str | None]:
    if subject is not None:
        yield subject
    prefix = Subject.parse(subject or "").context_prefix
    yield prefix or None
    yield GLOBAL_CONTEXT


def _counts(schema: StoredSchema, deleted: bool, deleted_only: bool) -> bool:
    return schema.is_deleted if deleted_only else deleted or not schema.is_deleted


def _put(table: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _discard(table: dict[Any, dict[SchemaKey, None]], key: object, member: SchemaKey) -> None:
    members = table.get(key, {})
    members.pop(member, None)
    if not members:
        table.pop(key, None)
