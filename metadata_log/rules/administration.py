"""Configuration, features and producer ids: written by the controller alone (F3)."""

import immutables

from metadata_log import features
from metadata_log.draft import Draft
from metadata_log.image import EntityKey
from metadata_log.records import ConfigSet, FeatureLevel, ProducerIdBlock, ResultCode
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
