"""Configuration, features and producer ids: written by the controller alone (F3)."""

import math

import immutables

from metadata_log import features
from metadata_log.client_quotas import QuotaEntity
from metadata_log.draft import Draft
from metadata_log.image import EntityKey
from metadata_log.records import (
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    FeatureLevel,
    ProducerIdBlock,
    ResultCode,
)
from metadata_log.rules.requirements import Refused
from metadata_log.types import MetadataOffset


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
    entity = QuotaEntity(record.user, record.client_id)
    if entity == QuotaEntity() or not record.key:
        raise Refused(ResultCode.INVALID, f"{entity} {record.key!r}: nobody's quota, or none")
    before = draft.client_quotas.get(entity) or immutables.Map()
    if record.value is not None:
        if not (math.isfinite(record.value) and record.value > 0):
            raise Refused(
                ResultCode.INVALID, f"{record.key}={record.value}: must be a number above 0"
            )
        draft.client_quotas.put(entity, before.set(record.key, record.value))
    elif record.key in before:
        after = before.delete(record.key)
        if after:
            draft.client_quotas.put(entity, after)
        else:
            draft.client_quotas.remove(entity)
    return offset


def change_note(_draft: Draft, offset: MetadataOffset, _record: ChangeNote) -> int:
    """Stands in the log, and nowhere else."""
    return offset


def feature_level(draft: Draft, offset: MetadataOffset, record: FeatureLevel) -> int:
    """Up only when everybody alive understands it, down only if that loses nothing (B4)."""
    reason = features.why_not(draft, record.name, record.level)
    if reason is not None:
        raise Refused(ResultCode.CONDITION_FAILED, reason)
    draft.features.put(record.name, record.level)
    return offset


def producer_id_block(draft: Draft, offset: MetadataOffset, record: ProducerIdBlock) -> int:
    if record.next_producer_id <= draft.next_producer_id:
        raise Refused(
            ResultCode.CONDITION_FAILED,
            f"producer ids up to {draft.next_producer_id} are assigned already",
        )
    draft.next_producer_id = record.next_producer_id
    return record.next_producer_id
