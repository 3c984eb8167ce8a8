"""Records of configuration, quotas, feature levels and producer ids, and the note of who asked for
a change.
"""

from quorate.common.types import BrokerId, Int32, Int64
from quorate.metadata_log.records.value import MetadataValue


class ConfigSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=11):
    """/config/ENTITY: sets or removes one key of one entity."""

    entity_type: str  # "topic", "broker", ...
    entity_name: str  # "" is the default of the type.
    key: str
    value: str | None  # None removes the key.


class ClientQuotaSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=32):
    """/quotas: sets or removes one quota of a user, a client id, or a user's client id (KIP-599,
    KIP-546).
    """

    user: str | None  # "" is the default of users; None if the user does not matter.
    client_id: str | None  # As ``user``; at least one of the two is named.
    key: str  # For example "controller_mutation_rate"; never an alias.
    value: float | None  # Above zero; None removes the key.


class IpQuotaSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=43):
    """/quotas/ips/ADDRESS: sets or removes one quota of an address (KIP-612)."""

    ip: str  # "" is the default of addresses.
    key: str  # "connection_creation_rate".
    value: float | None  # Above zero; None removes the key.


class FeatureLevel(MetadataValue, frozen=True, gc=False, kw_only=True, tag=12):
    """/features: a level that gates behaviour and record types."""

    name: str  # For example "inter_broker_protocol".
    level: Int32  # The level in force.


class ProducerIdBlock(MetadataValue, frozen=True, gc=False, kw_only=True, tag=13):
    """Moves the first unassigned producer id forward. The writer owns the ids [old,
    next_producer_id).
    """

    next_producer_id: Int64  # First id of the next block.


class ChangeNote(MetadataValue, frozen=True, gc=False, kw_only=True, tag=37):
    """Names who asked for the records beside it. It is for the audit log and changes no state."""

    principal: str  # "User:alice"; empty if a direct client did not say.
    client_host: str
    client_id: str
    api: str  # For example "CreateTopics".
    forwarded_by: BrokerId = BrokerId(
        -1
    )  # The broker that forwarded the request, or -1 if it was not forwarded.
