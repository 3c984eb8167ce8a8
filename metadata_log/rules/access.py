"""Access control entries come and go (F3).

Which numbers mean anything is the controller's to check: voters of two versions must come to the
same image.
"""

from metadata_log.acls import NO_ENTRIES, AclEntry, AclPattern, with_entry, without_entry
from metadata_log.draft import Draft
from metadata_log.records import AclAdded, AclRemoved
from metadata_log.types import MetadataOffset


def acl_added(draft: Draft, offset: MetadataOffset, record: AclAdded) -> int:
    pattern, entry = _pattern(record), _entry(record)
    entries = draft.acls.get(pattern) or NO_ENTRIES
    if entry not in entries.get(entry.principal, ()):
        draft.acls.put(pattern, with_entry(entries, entry))
    return offset


def acl_removed(draft: Draft, offset: MetadataOffset, record: AclRemoved) -> int:
    pattern, entry = _pattern(record), _entry(record)
    entries = draft.acls.get(pattern) or NO_ENTRIES
    if entry not in entries.get(entry.principal, ()):
        return offset
    others = without_entry(entries, entry)
    if others:
        draft.acls.put(pattern, others)
    else:
        draft.acls.remove(pattern)
    return offset


def _pattern(record: AclAdded | AclRemoved) -> AclPattern:
    return AclPattern(record.resource_type, record.pattern_type, record.resource_name)


def _entry(record: AclAdded | AclRemoved) -> AclEntry:
    return AclEntry(record.principal, record.host, record.operation, record.permission)
