"""The requests that look up subjects, versions, schemas and ids."""

from collections.abc import Mapping
from typing import Final

from quorate.broker.registry.operations.calls import (
    Decision,
    HeavyWork,
    Json,
    Outcome,
    RegistryCall,
)
from quorate.broker.registry.operations.rights import may_see, require
from quorate.broker.registry.operations.selection import (
    key_of,
    selected,
    shown,
    shown_content,
    source_of,
)
from quorate.broker.registry.registry_errors import (
    invalid_schema,
    schema_not_found,
    subject_not_found,
)
from quorate.broker.registry.schemas.languages import LANGUAGES, PROTOBUF, SchemaSource, parsed
from quorate.broker.registry.schemas.protobuf_schema import ProtobufSchema
from quorate.broker.registry.state.registry_records import StoredSchema
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.registry.subjects import ALL_CONTEXTS, Subject
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation
from quorate.common.schema_errors import InvalidSchema

_SERIALIZED: Final = "serialized"


def schema_types(_state: RegistryState, _call: RegistryCall, _rights: Rights) -> Outcome:
    return Decision(list(LANGUAGES))


def list_contexts(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """List the contexts that have a subject which the client may see."""
    visible = {Subject.parse(one).context for one in _visible(state, rights, deleted=True)}
    return Decision(call.page([one for one in state.contexts() if one in visible or one == "."]))


def list_subjects(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """List subjects by their prefix: of the default context unless it names others."""
    prefix = call.option("subjectPrefix")
    deleted = call.flag("deleted")
    deleted_only = call.flag("deletedOnly") or call.flag("deleted_only")
    found = _visible(state, rights, deleted=deleted, deleted_only=deleted_only)
    return Decision(call.page([one for one in found if _has_prefix(one, prefix)]))


def list_schemas(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """List all versions by the prefix of their subjects."""
    prefix, deleted = call.option("subjectPrefix"), call.flag("deleted")
    found: list[StoredSchema] = []
    for subject in _visible(state, rights, deleted=deleted):
        if _has_prefix(subject, prefix):
            versions = state.versions(subject, deleted=deleted)
            found += versions[-1:] if call.flag("latestOnly") else versions
    return Decision([shown(one) for one in call.page(found)])


def list_versions(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    require(rights, AclOperation.DESCRIBE, call.subject)
    subject = str(call.subject)
    deleted_only = call.flag("deletedOnly") or call.flag("deleted_only")
    found = state.versions(subject, deleted=call.flag("deleted"), deleted_only=deleted_only)
    if not found:
        raise subject_not_found(subject)
    return Decision(call.page([one.version for one in found]))


def get_version(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    require(rights, AclOperation.DESCRIBE, call.subject)
    found = selected(state, call.subject, call.version, deleted=call.flag("deleted"))
    return _formatted(state, call, found, shown(found))


def get_version_text(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    require(rights, AclOperation.DESCRIBE, call.subject)
    found = selected(state, call.subject, call.version, deleted=call.flag("deleted"))
    return _formatted(state, call, found, found.text)


def referenced_by(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """List the ids of the schemas that refer to a version."""
    require(rights, AclOperation.DESCRIBE, call.subject)
    found = selected(state, call.subject, call.version)
    ids = {one.schema_id for one in state.referrers(key_of(found), deleted=call.flag("deleted"))}
    return Decision(call.page(sorted(ids)))


def latest_with_metadata(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Return the last version whose metadata has all given properties."""
    require(rights, AclOperation.DESCRIBE, call.subject)
    wanted = dict(zip(call.options("key"), call.options("value"), strict=False))
    versions = state.versions(str(call.subject), deleted=call.flag("deleted"))
    if not versions:
        raise subject_not_found(str(call.subject))
    for one in reversed(versions):
        properties = (one.more.get("metadata") or {}).get("properties") or {}
        if isinstance(properties, Mapping) and wanted.items() <= properties.items():
            return _formatted(state, call, one, shown(one))
    raise schema_not_found()


def get_by_id(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    found = _uses_of_id(state, call, rights)[0]
    answer = shown_content(found)
    if call.flag("fetchMaxId"):
        answer["maxId"] = state.max_ids.get(Subject.parse(found.subject).context, 0)
    return _formatted(state, call, found, answer)


def has_schema(state: RegistryState, call: RegistryCall, _rights: Rights) -> Outcome:
    """Say whether a schema has an id in any context. Only brokers ask, on nobody's behalf."""
    found = any(state.uses_of_id(context, call.schema_id) for context in state.contexts())
    return Decision(found)


def get_text_by_id(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    found = _uses_of_id(state, call, rights)[0]
    return _formatted(state, call, found, found.text)


def get_by_guid(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    guid = call.parameters["guid"]
    found = [one for one in state.uses_of_guid(guid) if may_see(rights, one.subject)]
    if not found:
        raise schema_not_found(guid[:80])
    return _formatted(state, call, found[0], shown_content(found[0]))


def subjects_of_id(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    found = _listed_uses(state, call, rights)
    return Decision(call.page(list(dict.fromkeys(one.subject for one in found))))


def versions_of_id(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    found = _listed_uses(state, call, rights)
    return Decision(call.page([{"subject": o.subject, "version": o.version} for o in found]))


def _listed_uses(state: RegistryState, call: RegistryCall, rights: Rights) -> list[StoredSchema]:
    found = _uses_of_id(state, call, rights)
    return [one for one in found if call.flag("deleted") or not one.is_deleted]


def _uses_of_id(state: RegistryState, call: RegistryCall, rights: Rights) -> list[StoredSchema]:
    """Return the versions with an id that the client may see: at least one.

    The id is looked for in the context of the parameter ``subject``. A schema that is deleted
    softly is found as well, because there is data with its id.

    Raises:
        RegistryError: 40403.
    """
    context = Subject.parse(call.option("subject")).context
    found = state.uses_of_id(context, call.schema_id)
    visible = [one for one in found if may_see(rights, one.subject)]
    if not visible:
        raise schema_not_found(call.schema_id)
    return visible


def _visible(
    state: RegistryState, rights: Rights, *, deleted: bool, deleted_only: bool = False
) -> list[str]:
    found = state.subjects(deleted=deleted, deleted_only=deleted_only)
    return [one for one in found if may_see(rights, one)]


def _has_prefix(subject: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        return Subject.parse(subject).name.startswith(prefix.removeprefix(ALL_CONTEXTS))
    wanted = Subject.parse(prefix)
    here = Subject.parse(subject)
    return here.context == wanted.context and here.name.startswith(wanted.name)


def _formatted(
    state: RegistryState, call: RegistryCall, schema: StoredSchema, answer: Json
) -> Outcome:
    """Return the answer, with the schema in the format that the client asks for.

    Protobuf schemas are given as base64 of their descriptor with ``format=serialized``.
    """
    if call.option("format") != _SERIALIZED or schema.language != PROTOBUF:
        return Decision(answer)
    source = source_of(state, schema)

    def decide(text: str) -> Decision:
        if isinstance(answer, str):
            return Decision(text)
        return Decision({**answer, "schema": text})

    return HeavyWork(source, _serialized, decide)


def _serialized(source: SchemaSource) -> str:
    try:
        found = parsed(source)
    except InvalidSchema as error:
        raise invalid_schema(error) from error
    assert isinstance(found, ProtobufSchema)
    return found.serialized
