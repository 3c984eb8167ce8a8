"""The configuration keys of groups (KIP-848), with Kafka's names, defaults and ranges.

A group need not exist to be configured. Groups of the classic protocol do not use these keys: their
members name their own timeouts.
"""

from typing import Final

from quorate.common.configuration import ConfigKey, ConfigSpec, Update

GROUP: Final = "group"
"""The entity type of groups in the metadata log."""

CONSUMER_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="consumer.session.timeout.ms",
    type=int,
    default=45_000,
    at_least=45_000,
    at_most=60_000,
    doc="How long a member of the group may be silent before it is removed, with the consumer "
    "protocol. Groups of the classic protocol do not use it.",
    update=Update.CLUSTER_WIDE,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="consumer.heartbeat.interval.ms",
    type=int,
    default=5_000,
    at_least=5_000,
    at_most=15_000,
    doc="How often members of the group send heartbeats, with the consumer protocol. Groups of the "
    "classic protocol do not use it.",
    update=Update.CLUSTER_WIDE,
)

GROUP_SPEC: Final = ConfigSpec(GROUP, [CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS])
