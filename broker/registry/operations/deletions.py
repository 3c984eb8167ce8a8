"""Deleting versions and subjects: softly first, so that they are found by their ids only, and then
permanently."""

from collections.abc import Sequence
from dataclasses import replace

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.operations.calls import LATEST, Decision, Outcome, RegistryCall
from quorate.broker.registry.operations.rights import require
from quorate.broker.registry.operations.selection import key_of, selected
from quorate.broker.registry.registry_errors import (
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_soft_deleted,
    version_soft_deleted,
)
from quorate.broker.registry.state.registry_records import (
    ConfigKey,
    DeleteSubjectKey,
    IdMarkKey,
    ModeKey,
    StoredSchema,
    record,
    schema_record,
)
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.registry.subjects import Subject
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation


def delete_version(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Delete one version; the answer is its number."""
    subject = call.subject
    require(rights, AclOperation.DELETE, subject)
    _require_writable(state, subject)
    permanent = call.flag("permanent")
    is_last = call.version == LATEST
    found = selected(state, subject, call.version, deleted=not is_last or permanent)
    if state.referrers(key_of(found), deleted=permanent):
        raise reference_exists(str(subject), found.version)
    if not permanent:
        if found.is_deleted:
            raise version_soft_deleted(str(subject), found.version)
        return Decision(found.version, [schema_record(replace(found, is_deleted=True))])
    if not found.is_deleted:
        raise version_not_soft_deleted(str(subject), found.version)
    is_everything = len(state.versions(str(subject), deleted=True)) == 1
    return Decision(
        found.version,
        [
            *tombstones_of(state, [found]),
            *(_forget(state, subject) if is_everything else ()),
        ],
    )


def delete_subject(state: RegistryState, call: RegistryCall, rights: Rights) -> Outcome:
    """Delete all versions of a subject; the answer has their numbers."""
    subject = call.subject
    require(rights, AclOperation.DELETE, subject)
    _require_writable(state, subject)
    permanent = call.flag("permanent")
    if not state.versions(str(subject), deleted=True):
        raise subject_not_found(str(subject))
    found = state.versions(str(subject), deleted=permanent)
    if not found:
        raise subject_soft_deleted(str(subject))
    for one in found:
        referrers = state.referrers(key_of(one), deleted=permanent)
        if any(other.subject != one.subject for other in referrers):
            raise reference_exists(str(subject), one.version)
        if permanent and not one.is_deleted:
            raise subject_not_soft_deleted(str(subject))
    numbers = [one.version for one in found]
    if not permanent:
        value = {"subject": str(subject), "version": numbers[-1]}
        return Decision(numbers, [record(DeleteSubjectKey(str(subject)), value)])
    return Decision(numbers, [*tombstones_of(state, found), *_forget(state, subject)])


def _require_writable(state: RegistryState, subject: Subject) -> None:
    if state.mode_in_scope(str(subject)).startswith("READONLY"):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def tombstones_of(state: RegistryState, gone: Sequence[StoredSchema]) -> list[LogRecord]:
    """Return the tombstones of versions, in descending order because of references among them.

    The highest ids that were given away are written down before the last record that shows them is
    gone, because an id is in data for ever.
    """
    tombstones = [record(key_of(one), None) for one in reversed(gone)]
    highest = {(Subject.parse(one.subject).context, one.schema_id) for one in gone}
    if highest & set(state.max_ids.items()):
        return [record(IdMarkKey(), {"maxIds": dict(state.max_ids)}), *tombstones]
    return tombstones


def _forget(state: RegistryState, subject: Subject) -> list[LogRecord]:
    """Return the tombstones of what a subject has besides versions."""
    name = str(subject)
    configs = [record(ConfigKey(name), None)] if state.config(name) is not None else []
    modes = [record(ModeKey(name), None)] if state.mode(name) is not None else []
    return [*configs, *modes]
