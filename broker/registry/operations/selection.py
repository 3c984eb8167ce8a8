"""Finds versions and the schemas that they refer to, and shows them to clients."""

from collections.abc import Sequence
from typing import Final

from quorate.broker.registry.operations.calls import LATEST, Json
from quorate.broker.registry.registry_errors import (
    invalid_schema,
    subject_not_found,
    version_not_found,
)
from quorate.broker.registry.schemas.languages import SchemaSource
from quorate.broker.registry.state.registry_records import (
    AVRO,
    Reference,
    SchemaKey,
    StoredSchema,
)
from quorate.broker.registry.state.registry_state import RegistryState, target_of
from quorate.broker.registry.subjects import Subject

REFERENCES_MAX: Final = 1_000


def selected(
    state: RegistryState, subject: Subject, version: int, *, deleted: bool = False
) -> StoredSchema:
    """Return a version of a subject.

    Raises:
        RegistryError: 40401 or 40402.
    """
    versions = state.versions(str(subject), deleted=deleted)
    if not versions:
        raise subject_not_found(str(subject))
    if version == LATEST:
        return versions[-1]
    found = next((one for one in versions if one.version == version), None)
    if found is None:
        raise version_not_found(version)
    return found


def source_of(state: RegistryState, schema: StoredSchema) -> SchemaSource:
    """Return the source of a version.

    Raises:
        RegistryError: 42201, a schema that it refers to is gone.
    """
    texts = referred_texts(state, schema.subject, schema.references)
    return SchemaSource(schema.language, schema.text, texts)


def referred_texts(
    state: RegistryState, subject: str, references: Sequence[Reference]
) -> tuple[tuple[str, str], ...]:
    """Return the texts of all schemas that are referred to, directly or not, by the names of the
    references. Each comes after those that it needs itself.

    Raises:
        RegistryError: 42201, one does not exist.
    """
    found: dict[str, str] = {}
    waiting = [(subject, one, False) for one in reversed(references)]
    begun: set[str] = set()
    while waiting:
        parent, reference, is_ready = waiting.pop()
        target = target_of(parent, reference)
        schema = state.version(target)
        if schema is None:
            raise invalid_schema(
                f"no schema reference found for subject '{target.subject}' and version "
                f"{target.version}"
            )
        if is_ready:
            found[reference.name] = schema.text
        elif reference.name not in begun:
            begun.add(reference.name)
            if len(begun) > REFERENCES_MAX:
                raise invalid_schema(f"it refers to more than {REFERENCES_MAX} schemas")
            waiting.append((parent, reference, True))
            waiting += [(target.subject, one, False) for one in reversed(schema.references)]
    return tuple(found.items())


def shown_references(schema: StoredSchema) -> list[Json]:
    return [one._asdict() for one in schema.references]


def shown_content(schema: StoredSchema) -> dict[str, Json]:
    """Return what a schema is, without where it stands."""
    shown: dict[str, Json] = {}
    if schema.language != AVRO:
        shown["schemaType"] = schema.language
    if schema.references:
        shown["references"] = shown_references(schema)
    shown |= schema.more
    shown["schema"] = schema.text
    return shown


def shown(schema: StoredSchema) -> dict[str, Json]:
    """Return a version as clients get it."""
    place = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.schema_id,
        "guid": schema.guid,
    }
    deleted = {"deleted": True} if schema.is_deleted else {}
    return {**place, **shown_content(schema), **deleted}


def key_of(schema: StoredSchema) -> SchemaKey:
    return SchemaKey(schema.subject, schema.version)
