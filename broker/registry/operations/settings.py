"""Configurations (compatibility and others) and modes: of a subject, of a context, and global."""

from collections.abc import Mapping
from typing import Final

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.operations.calls import Decision, Json, Outcome, RegistryCall
from quorate.broker.registry.operations.deletions import tombstones_of
from quorate.broker.registry.operations.rights import require_scope
from quorate.broker.registry.operations.selection import key_of
from quorate.broker.registry.registry_errors import (
    invalid_compatibility,
    invalid_mode,
    malformed,
    no_subject_config,
    no_subject_mode,
    not_permitted,
    reference_exists,
    subject_not_found,
)
from quorate.broker.registry.schemas.languages import Compatibility
from quorate.broker.registry.state.registry_records import (
    ConfigKey,
    ModeKey,
    StoredSchema,
    record,
)
from quorate.broker.registry.state.registry_state import (
    DEFAULT_COMPATIBILITY,
    READWRITE,
    RegistryState,
)
from quorate.broker.registry.subjects import Subject
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation

_LEVEL: Final = "compatibilityLevel"
_FLAGS: Final = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
_TEXTS: Final = ("alias", "compatibilityGroup", "compatibilityPolicy")
_OBJECTS: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
_KEPT: Final = (*_FLAGS, *_TEXTS, *_OBJECTS)
_MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


def get_config(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    scope = call.scope
    require_scope(rights, AclOperation.DESCRIBE_CONFIGS, scope)
    if scope is None or call.flag("defaultToGlobal"):
        return Decision(state.config_in_scope(scope))
    own = state.config(scope)
    if own is None:
        raise no_subject_config(scope)
    return Decision({_LEVEL: DEFAULT_COMPATIBILITY, **_shown(own)})


def put_config(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Change the fields of a configuration that the request has; null removes one."""
    scope = call.scope
    require_scope(rights, AclOperation.ALTER_CONFIGS, scope)
    _require_writable(state, scope)
    given = _given_config(call.json())
    changed = {**(state.config(scope) or {}), **given}
    changed = {name: value for name, value in changed.items() if value is not None}
    answer: dict[str, Json] = {name: changed[name] for name in _KEPT if name in changed}
    if _LEVEL in changed:
        answer["compatibility"] = changed[_LEVEL]
    subject = {} if scope is None else {"subject": scope}
    return Decision(answer, [record(ConfigKey(scope), {**subject, **changed})])


def delete_config(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Forget a configuration; the answer is what it was."""
    scope = call.scope
    require_scope(rights, AclOperation.ALTER_CONFIGS, scope)
    _require_writable(state, scope)
    own = state.config(scope)
    if own is None and scope is not None:
        raise subject_not_found(scope)
    answer = {_LEVEL: DEFAULT_COMPATIBILITY, **_shown(own or {})}
    return Decision(answer, [] if own is None else [record(ConfigKey(scope), None)])


def get_mode(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    scope = call.scope
    require_scope(rights, AclOperation.DESCRIBE_CONFIGS, scope)
    if scope is None or call.flag("defaultToGlobal"):
        return Decision({"mode": state.mode_in_scope(scope)})
    own = state.mode(scope)
    if own is None:
        raise no_subject_mode(scope)
    return Decision({"mode": own})


def put_mode(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Set a mode. IMPORT, in which clients say the ids, needs a scope without schemas or
    ``force``."""
    scope = call.scope
    require_scope(rights, AclOperation.ALTER_CONFIGS, scope)
    mode = call.json().get("mode")
    if not isinstance(mode, str) or mode.upper() not in _MODES:
        raise invalid_mode()
    mode = mode.upper()
    tombstones: list[LogRecord] = []
    if mode == "IMPORT" and state.mode_in_scope(scope) != mode and not call.flag("force"):
        if any(_is_within(one, scope) for one in state.subjects()):
            raise not_permitted("Cannot import since found existing subjects")
        tombstones = _softly_deleted(state, scope)
    subject = {} if scope is None else {"subject": scope}
    return Decision(
        {"mode": mode}, [*tombstones, record(ModeKey(scope), {**subject, "mode": mode})]
    )


def delete_mode(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    scope = call.scope
    require_scope(rights, AclOperation.ALTER_CONFIGS, scope)
    own = state.mode(scope)
    if own is None and scope is not None:
        raise subject_not_found(scope)
    return Decision(
        {"mode": own or READWRITE}, [] if own is None else [record(ModeKey(scope), None)]
    )


def _softly_deleted(state: RegistryState, scope: str | None) -> list[LogRecord]:
    """Return tombstones of what is deleted softly already, so that ids are free for an import."""
    gone: list[StoredSchema] = []
    for subject in state.subjects(deleted=True):
        if _is_within(subject, scope):
            for one in state.versions(subject, deleted=True):
                if state.referrers(key_of(one), deleted=True):
                    raise reference_exists(subject, one.version)
                gone.append(one)
    return tombstones_of(state, gone)


def _is_within(subject: str, scope: str | None) -> bool:
    wanted, here = Subject.parse(scope or ""), Subject.parse(subject)
    return here.context == wanted.context and wanted.name in ("", here.name)


def _require_writable(state: RegistryState, scope: str | None) -> None:
    if state.mode_in_scope(scope).startswith("READONLY"):
        raise not_permitted(f"{'the registry' if scope is None else scope} is in read-only mode")


def _given_config(body: Mapping[str, Json]) -> dict[str, Json]:
    given: dict[str, Json] = {}
    if body.get("compatibility") is not None:
        level = body["compatibility"]
        if not isinstance(level, str) or level.upper() not in Compatibility.__members__:
            raise invalid_compatibility()
        given[_LEVEL] = level.upper()
    for names, kind in ((_FLAGS, bool), (_TEXTS, str), (_OBJECTS, Mapping)):
        for name in names:
            if name in body:
                if body[name] is not None and not isinstance(body[name], kind):
                    raise malformed(f"{name} has a wrong type")
                given[name] = body[name]
    return given


def _shown(config: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in config.items() if name != "subject"}
