"""Records of configuration, quotas, levels, producer ids, and on whose behalf things change."""

from metadata_log.records.value import Value
from metadata_log.types import (
    BrokerId,
    Int32,
    Int64,
)


class ConfigSet(Value, frozen=True, gc=False, kw_only=True, tag=11):
    """/config/ENTITY: one key of one entity."""

    entity_type: str  # "topic", "broker", ...
    entity_name: str  # "" is the default of the type.
    key: str
    value: str | None  # None removes the key.


class ClientQuotaSet(Value, frozen=True, gc=False, kw_only=True, tag=32):
    """/quotas: one quota of a user, a client id or a user's client id (KIP-599, KIP-546)."""

    user: str | None  # "" is the default of users; None: whoever it is.
    client_id: str | None  # As ``user``; one of the two at least is named.
    key: str  # "controller_mutation_rate"; never an alias.
    value: float | None  # Above zero; None removes the key.


class FeatureLevel(Value, frozen=True, gc=False, kw_only=True, tag=12):
    """/features: a level that gates behaviour and record types."""

    name: str  # "inter_broker_protocol".
    level: Int32  # The level in force.


class ProducerIdBlock(Value, frozen=True, gc=False, kw_only=True, tag=13):
    """Moves the first unassigned producer id forward: the writer owns [old, next_producer_id)."""

    next_producer_id: Int64  # First id of the next block.


class ChangeNote(Value, frozen=True, gc=False, kw_only=True, tag=37):
    """On whose behalf the records beside it are written: for the audit trail, no state at all."""

    principal: str  # "User:alice"; empty: a direct client that did not say.
    client_host: str
    client_id: str
    api: str  # "CreateTopics".
    forwarded_by: BrokerId = BrokerId(-1)  # The broker that it was asked; -1: the writer itself.
