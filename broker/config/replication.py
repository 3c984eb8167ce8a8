"""Followers, their leaders, and how fast the one may copy from the other."""

from typing import Final

from metadata_log.configuration import ConfigKey, Update

REPLICA_LAG_TIME_MAX_MS: Final = ConfigKey(
    name="replica.lag.time.max.ms",
    type=int,
    default=30_000,
    at_least=1,
    doc="A follower that has not caught up for this long leaves the ISR (C13).",
    update=Update.CLUSTER_WIDE,
)
REPLICA_FETCH_WAIT_MAX_MS: Final = ConfigKey(
    name="replica.fetch.wait.max.ms",
    type=int,
    default=500,
    at_least=0,
    doc="Long poll of a follower at its leader.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = ConfigKey(
    name="replica.fetch.response.max.bytes",
    type=int,
    default=2 << 20,
    at_least=1024,
    doc="Size of one replication frame; at least one batch is always sent.",
)
LEADER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="leader.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="Bytes per second that this broker sends of throttled replicas that are not in sync.",
    update=Update.CLUSTER_WIDE,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="follower.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="Bytes per second that this broker takes of throttled replicas that are not in sync.",
    update=Update.CLUSTER_WIDE,
)
