"""Rules of configuration, quotas, features, producer ids, ACLs, SCRAM credentials and delegation
tokens.

Only the controller writes these records (F3).
"""

import math
from typing import Final

import immutables

from quorate.common.types import MetadataOffset
from quorate.metadata_log import features
from quorate.metadata_log.acls import NO_ENTRIES, AclEntry, AclPattern, with_entry, without_entry
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import DelegationTokenState, EntityKey, ScramKey
from quorate.metadata_log.records import (
    AclAdded,
    AclRemoved,
    ClientQuotaSet,
    ConfigSet,
    DelegationTokenRemoved,
    DelegationTokenSet,
    FeatureLevel,
    IpQuotaSet,
    OperationRefused,
    ProducerIdBlock,
    ResultCode,
    ScramCredentialRemoved,
    ScramCredentialSet,
    ScramDecoyKeySet,
)


def config_set(draft: Draft, offset: MetadataOffset, record: ConfigSet) -> int:
    entity: EntityKey = (record.entity_type, record.entity_name)  # type: ignore[assignment]
    before = draft.configs.get(entity) or immutables.Map()
    if record.value is not None:
        draft.configs.put(entity, before.set(record.key, record.value))
    elif record.key in before:
        after = before.delete(record.key)
        if after:
            draft.configs.put(entity, after)
        else:
            draft.configs.remove(entity)
    return offset


def client_quota_set(draft: Draft, offset: MetadataOffset, record: ClientQuotaSet) -> int:
    entity = ClientQuotaEntity(record.user, record.client_id)
    return _quota_set(draft, offset, entity, record.key, record.value)


def ip_quota_set(draft: Draft, offset: MetadataOffset, record: IpQuotaSet) -> int:
    entity = ClientQuotaEntity(ip=record.ip)
    return _quota_set(draft, offset, entity, record.key, record.value)


def _quota_set(
    draft: Draft,
    offset: MetadataOffset,
    entity: ClientQuotaEntity,
    key: str,
    value: float | None,
) -> int:
    if entity == ClientQuotaEntity() or not key:
        raise OperationRefused(ResultCode.INVALID, f"{entity} {key!r}: nobody's quota, or none")
    before = draft.client_quotas.get(entity) or immutables.Map()
    if value is not None:
        if not (math.isfinite(value) and value > 0):
            raise OperationRefused(ResultCode.INVALID, f"{key}={value}: must be a number above 0")
        draft.client_quotas.put(entity, before.set(key, value))
    elif key in before:
        after = before.delete(key)
        if after:
            draft.client_quotas.put(entity, after)
        else:
            draft.client_quotas.remove(entity)
    return offset


def feature_level(draft: Draft, offset: MetadataOffset, record: FeatureLevel) -> int:
    """Set a level: upwards only when every live broker understands it, downwards only if that loses
    nothing (B4).
    """
    reason = features.why_not(draft, record.name, record.level)
    if reason is not None:
        raise OperationRefused(ResultCode.CONDITION_FAILED, reason)
    draft.features.put(record.name, record.level)
    return offset


def producer_id_block(draft: Draft, offset: MetadataOffset, record: ProducerIdBlock) -> int:
    if record.next_producer_id <= draft.next_producer_id:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED,
            f"producer ids up to {draft.next_producer_id} are assigned already",
        )
    draft.put_next_producer_id(record.next_producer_id)
    return record.next_producer_id


# Access control entries come and go (F3).
#
# The controller checks which numbers are valid: voters of two versions must come to the
# same image.


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


# SCRAM credentials: written by the controller alone (F3).


MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Names of the SCRAM mechanisms by Kafka's numbers."""

KEY_BYTES: Final = {1: 32, 2: 64}
"""The length of each mechanism's hash."""

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384


def scram_credential_set(draft: Draft, offset: MetadataOffset, record: ScramCredentialSet) -> int:
    credential, key_bytes = record.credential, KEY_BYTES.get(record.mechanism)
    if not record.user or key_bytes is None:
        raise OperationRefused(
            ResultCode.INVALID,
            f"SCRAM credential of user {record.user!r} for mechanism {record.mechanism}: a name is "
            "needed, and one of the mechanisms 1 and 2",
        )
    if not {len(credential.stored_key), len(credential.server_key)} == {key_bytes}:
        raise OperationRefused(
            ResultCode.INVALID, f"keys of user {record.user!r} have another length"
        )
    if not LEAST_ITERATIONS <= credential.iterations <= MOST_ITERATIONS or not credential.salt:
        raise OperationRefused(
            ResultCode.INVALID,
            f"SCRAM credential of user {record.user!r}: it needs a salt, and "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations, not {credential.iterations}",
        )
    draft.scram.put(ScramKey(record.user, record.mechanism), credential)
    return offset


def scram_credential_removed(
    draft: Draft, offset: MetadataOffset, record: ScramCredentialRemoved
) -> int:
    key = ScramKey(record.user, record.mechanism)
    if draft.scram.get(key) is None:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED,
            f"user {record.user!r} has no credential for mechanism {record.mechanism}",
        )
    draft.scram.remove(key)
    return offset


DECOY_KEY_BYTES: Final = 32


def scram_decoy_key_set(draft: Draft, offset: MetadataOffset, record: ScramDecoyKeySet) -> int:
    if len(record.key) != DECOY_KEY_BYTES:
        raise OperationRefused(
            ResultCode.INVALID, f"the key has {len(record.key)} bytes, not {DECOY_KEY_BYTES}"
        )
    if draft.scram_decoy_key:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED, "the key for users who do not exist is set already"
        )
    draft.put_scram_decoy_key(record.key)
    return offset


# Delegation tokens: written by the controller alone (F3, KIP-48).


def delegation_token_set(draft: Draft, offset: MetadataOffset, record: DelegationTokenSet) -> int:
    """Write a token. Owner and maximal lifetime are fixed by the first record; later only the
    expiry changes.
    """
    if not record.token_id or "/" in record.token_id or not record.owner:
        raise OperationRefused(
            ResultCode.INVALID, "a delegation token needs an owner, and an id without /"
        )
    if not record.issue_ms <= record.expiry_ms <= record.max_ms:
        raise OperationRefused(
            ResultCode.INVALID,
            f"token {record.token_id} would end at {record.expiry_ms}: not between its issue at "
            f"{record.issue_ms} and its maximum {record.max_ms}",
        )
    token = DelegationTokenState(
        record.owner,
        record.requester,
        record.renewers,
        record.issue_ms,
        record.expiry_ms,
        record.max_ms,
        offset,
    )
    before = draft.tokens.get(record.token_id)
    if before is not None and _fixed(before) != _fixed(token):
        raise OperationRefused(
            ResultCode.INVALID, f"token {record.token_id} is another one already"
        )
    draft.tokens.put(record.token_id, token)
    return offset


def delegation_token_removed(
    draft: Draft, offset: MetadataOffset, record: DelegationTokenRemoved
) -> int:
    if draft.tokens.get(record.token_id) is not None:
        draft.tokens.remove(record.token_id)
    return offset


def _fixed(token: DelegationTokenState) -> tuple[object, ...]:
    return token.owner, token.requester, token.renewers, token.issue_ms, token.max_ms
