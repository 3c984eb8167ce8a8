"""Registering schemas, looking them up, and checking whether they would be compatible."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.operations.calls import (
    Decision,
    HeavyWork,
    Json,
    Outcome,
    RegistryCall,
)
from quorate.broker.registry.operations.rights import require
from quorate.broker.registry.operations.selection import (
    referred_texts,
    selected,
    shown,
    shown_content,
    source_of,
)
from quorate.broker.registry.registry_errors import (
    RegistryError,
    id_does_not_match,
    incompatible_schema,
    invalid_schema,
    malformed,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from quorate.broker.registry.schemas.languages import (
    Compatibility,
    EarlierSchema,
    ParsedSchema,
    SchemaSource,
    incompatibilities,
    is_same,
    parsed,
)
from quorate.broker.registry.schemas.recursive_comparison import Problems
from quorate.broker.registry.state.registry_records import (
    AVRO,
    ContextKey,
    Reference,
    SchemaKey,
    StoredSchema,
    record,
    schema_record,
)
from quorate.broker.registry.state.registry_state import READWRITE, RegistryState
from quorate.broker.registry.subjects import DEFAULT_CONTEXT, Subject
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation
from quorate.common.schema_errors import InvalidSchema

IMPORT: Final = "IMPORT"
_MAX_ID: Final = (1 << 31) - 1
_CONTENT: Final = ("metadata", "ruleSet")


class GivenSchema(NamedTuple):
    """The schema in the body of a request. ``schema_id`` and ``version`` are for imports; without
    them they are None."""

    language: str
    text: str
    references: tuple[Reference, ...]
    more: Mapping[str, Json]
    schema_id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that is needed to look at a new schema, taken from the state."""

    source: SchemaSource
    normalize: bool
    earlier: tuple[EarlierSchema, ...]
    level: Compatibility = Compatibility.NONE
    compared: tuple[EarlierSchema, ...] = ()
    """The versions that it must be compatible with."""


class _Findings(NamedTuple):
    """What was found out about a new schema: its canonical text, the version with the same schema,
    if there is one, and why it is not compatible."""

    text: str
    same_as: int | None
    problems: Problems


def register(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Give the schema an id and a version, unless it has them already."""
    subject = call.subject
    require(rights, AclOperation.WRITE, subject)
    given = given_schema(call)
    _require_mode(state, subject, given)
    is_import = state.mode_in_scope(str(subject)) == IMPORT
    plan = _plan(state, call, subject, given, compare=not is_import)
    return HeavyWork(plan, _examined, partial(_decide_registration, state, subject, given))


def look_up(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Return the version of a subject that has the schema."""
    subject = call.subject
    require(rights, AclOperation.DESCRIBE, subject)
    deleted = call.flag("deleted")
    if not state.versions(str(subject), deleted=deleted):
        raise subject_not_found(str(subject))
    given = given_schema(call)
    plan = _plan(state, call, subject, given, deleted=deleted)

    def decide(findings: _Findings) -> Decision:
        found = _registered(state, subject, given, findings, deleted=deleted)
        if found is None:
            raise schema_not_found()
        return Decision(shown(found))

    return HeavyWork(plan, _examined, decide)


def check_compatibility(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Tell whether the schema is compatible with a version, or with those that registering it would
    compare it with."""
    subject = call.subject
    require(rights, AclOperation.DESCRIBE, subject)
    given = given_schema(call)
    plan = _plan(state, call, subject, given, compare=True)
    if "version" in call.parameters and state.versions(str(subject)):
        one = selected(state, subject, call.version)
        plan = replace(plan, compared=_earlier(state, [one]))
    elif "version" in call.parameters and call.version > 0:
        raise subject_not_found(str(subject))
    verbose = call.flag("verbose")

    def compute(plan: _Plan) -> Problems:
        try:
            return _examined(plan).problems
        except RegistryError as error:
            if not verbose:
                raise
            return [error.message]

    def decide(problems: Problems) -> Decision:
        messages = {"messages": problems} if verbose else {}
        return Decision({"is_compatible": not problems, **messages})

    return HeavyWork(plan, compute, decide)


def given_schema(call: RegistryCall) -> GivenSchema:
    """Read the body of a request.

    Raises:
        RegistryError: a field is missing or has a wrong type.
    """
    body = call.json()
    text, language = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(language, str):
        raise malformed("the request has no schema, or its schemaType is no text")
    if not text.strip():
        raise invalid_schema("Empty schema")
    more = {name: body[name] for name in _CONTENT if body.get(name) is not None}
    if not all(isinstance(one, Mapping) for one in more.values()):
        raise malformed("metadata and ruleSet are objects")
    return GivenSchema(
        language.upper(),
        text,
        _references(body.get("references") or []),
        more,
        _number(body, "id"),
        _number(body, "version"),
    )


def _number(body: Mapping[str, Json], name: str) -> int | None:
    found = body.get(name)
    if found is None or found in (-1, 0):
        return None
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= _MAX_ID:
        raise malformed(f"{name} is no number from 1 to {_MAX_ID}")
    return found


def _references(found: Json) -> tuple[Reference, ...]:
    references = []
    for one in found if isinstance(found, list) else [None]:
        fields = one if isinstance(one, Mapping) else {}
        name, subject = fields.get("name"), fields.get("subject")
        version = fields.get("version")
        if not isinstance(name, str) or not isinstance(subject, str):
            raise malformed("each of the references has a name, a subject and a version")
        if not isinstance(version, int) or not 1 <= version <= _MAX_ID:
            raise malformed("each of the references has a name, a subject and a version")
        references.append(Reference(name, subject, version))
    return tuple(references)


def _require_mode(state: RegistryState, subject: Subject, given: GivenSchema) -> None:
    mode = state.mode_in_scope(str(subject))
    if given.schema_id is not None and mode != IMPORT:
        raise not_permitted(f"Subject {subject} is not in import mode")
    if given.schema_id is None and mode != READWRITE:
        raise not_permitted(f"Subject {subject} is not in read-write mode")


def _plan(
    state: RegistryState,
    call: RegistryCall,
    subject: Subject,
    given: GivenSchema,
    *,
    compare: bool = False,
    deleted: bool = False,
) -> _Plan:
    config = state.config_in_scope(str(subject))
    earlier = state.versions(str(subject), deleted=deleted)
    compared: Sequence[StoredSchema] = ()
    if compare:
        group = config.get("compatibilityGroup")
        compared = [one for one in earlier if _group(one.more, group) == _group(given.more, group)]
    return _Plan(
        SchemaSource(
            given.language, given.text, referred_texts(state, str(subject), given.references)
        ),
        normalize=call.flag("normalize") or config.get("normalize") is True,
        earlier=_earlier(state, [one for one in earlier if one.references == given.references]),
        level=_level(config),
        compared=_earlier(state, compared),
    )


def _level(config: Mapping[str, Json]) -> Compatibility:
    """Return the level that holds. What another registry may have written counts as BACKWARD."""
    return Compatibility.__members__.get(config["compatibilityLevel"], Compatibility.BACKWARD)


def _group(more: Mapping[str, Json], group: str | None) -> Json:
    """Return the value of the property of the metadata by which versions are compatible with each
    other only, or None without it."""
    properties = (more.get("metadata") or {}).get("properties") if group else None
    return properties.get(group) if isinstance(properties, Mapping) else None


def _earlier(state: RegistryState, schemas: Sequence[StoredSchema]) -> tuple[EarlierSchema, ...]:
    found = []
    for one in schemas:
        try:
            source = source_of(state, one)
        except RegistryError:
            source = SchemaSource(one.language, one.text)  # What it refers to is gone.
        found.append(EarlierSchema(one.version, source))
    return tuple(found)


def _examined(plan: _Plan) -> _Findings:
    """Parse and compare a schema. This takes long.

    Raises:
        RegistryError: 42201.
    """
    try:
        new = parsed(plan.source, normalize=plan.normalize)
        same_as = None
        for one in reversed(plan.earlier):
            if one.source == plan.source or _is_same_as(one, new):
                same_as = one.version
                break
        return _Findings(new.text, same_as, incompatibilities(new, plan.compared, plan.level))
    except InvalidSchema as error:
        raise invalid_schema(error) from error


def _is_same_as(earlier: EarlierSchema, new: ParsedSchema) -> bool:
    try:
        return is_same(parsed(earlier.source), new)
    except InvalidSchema:
        return False


def _registered(
    state: RegistryState,
    subject: Subject,
    given: GivenSchema,
    findings: _Findings,
    *,
    deleted: bool = False,
) -> StoredSchema | None:
    """Return the version of the subject that has the schema."""
    content = _stored(subject, given, findings).content
    for one in state.uses_of_content(subject.context, content):
        if one.subject == str(subject) and (deleted or not one.is_deleted):
            return one
    if findings.same_as is None:
        return None
    found = state.version(SchemaKey(str(subject), findings.same_as))
    is_same = found is not None and dict(found.more) == dict(given.more)
    return found if is_same else None


def _decide_registration(
    state: RegistryState, subject: Subject, given: GivenSchema, findings: _Findings
) -> Decision:
    known = _registered(state, subject, given, findings)
    if known is not None and given.schema_id in (None, known.schema_id):
        return Decision(_answer(known))
    if findings.problems:
        raise incompatible_schema(str(subject), findings.problems)
    stored = _stored(subject, given, findings)
    everything = state.versions(str(subject), deleted=True)
    next_version = everything[-1].version + 1 if everything else 1
    if given.version is not None and given.schema_id is None and given.version != next_version:
        raise invalid_schema("Version is not one more than previous version")
    schema_id = _id_for(state, subject, given, stored)
    stored = replace(stored, version=given.version or next_version, schema_id=schema_id)
    records = [
        *_context_records(state, subject),
        schema_record(stored),
        *_superseded(state, everything, stored),
    ]
    return Decision(_answer(stored), records)


def _stored(subject: Subject, given: GivenSchema, findings: _Findings) -> StoredSchema:
    return StoredSchema(
        str(subject), 0, 0, findings.text, given.language, given.references, given.more
    )


def _id_for(
    state: RegistryState, subject: Subject, given: GivenSchema, stored: StoredSchema
) -> int:
    """Return the id of a schema: the one that it was imported with, the one that it has in another
    subject of the context, or one that nobody has ever had.

    Raises:
        RegistryError: 42207, another schema has the id.
    """
    if given.schema_id is not None:
        holders = state.uses_of_id(subject.context, given.schema_id)
        if any(one.content != stored.content for one in holders):
            raise id_does_not_match(given.schema_id)
        return given.schema_id
    same = state.uses_of_content(subject.context, stored.content)
    if same:
        return same[0].schema_id
    return state.max_ids.get(subject.context, 0) + 1


def _context_records(state: RegistryState, subject: Subject) -> list[LogRecord]:
    """Return the record of a context that is new."""
    if subject.context == DEFAULT_CONTEXT or subject.context in state.contexts():
        return []
    value = {"tenant": "default", "context": subject.context}
    return [record(ContextKey(subject.context), value)]


def _superseded(
    state: RegistryState, everything: Sequence[StoredSchema], stored: StoredSchema
) -> list[LogRecord]:
    """Return tombstones of softly deleted versions that have the id of the new one, which takes
    their place."""
    keys = [
        SchemaKey(one.subject, one.version)
        for one in everything
        if one.is_deleted and one.schema_id == stored.schema_id and one.version < stored.version
    ]
    return [record(key, None) for key in keys if not state.referrers(key, deleted=True)]


def _answer(stored: StoredSchema) -> dict[str, Json]:
    place = {"id": stored.schema_id, "version": stored.version, "guid": stored.guid}
    return {**place, **shown_content(stored)}
