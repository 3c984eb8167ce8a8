"""The keys of replication, and of its throttles."""

from typing import Final

from quorate.common.configuration import ConfigKey, Update

REPLICA_LAG_TIME_MAX_MS: Final = ConfigKey(
    name="replica.lag.time.max.ms",
    type=int,
    default=30_000,
    at_least=1,
    doc="A follower that has not caught up for this long leaves the ISR (C13). Where that leaves "
    "fewer than min.insync.replicas, it leaves after 1.5 times replica.silence.max.ms at the "
    "earliest.",
    update=Update.CLUSTER_WIDE,
)
REPLICA_SILENCE_MAX_MS: Final = ConfigKey(
    name="replica.silence.max.ms",
    type=int,
    default=5_000,
    at_least=100,
    doc="A follower or leader of which nothing was heard for this long counts as cut off: "
    "the leader goes on without it, or the controller moves the leadership.",
    update=Update.CLUSTER_WIDE,
)
REPLICA_FETCH_WAIT_MAX_MS: Final = ConfigKey(
    name="replica.fetch.wait.max.ms",
    type=int,
    default=500,
    at_least=0,
    doc="How long the fetch of a follower waits at its leader for new records. In effect it is at "
    "most a third of replica.silence.max.ms, whatever is set here: an idle follower is quiet while "
    "it waits, and would count as cut off. It is not refused, because replica.silence.max.ms may "
    "change while brokers run.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = ConfigKey(
    name="replica.fetch.response.max.bytes",
    type=int,
    default=2 << 20,
    at_least=1024,
    doc="The size of one replication frame. A frame always carries at least one batch.",
)
LEADER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="leader.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="How many bytes per second this broker sends for throttled replicas that are not in sync.",
    update=Update.CLUSTER_WIDE,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = ConfigKey(
    name="replica.alter.log.dirs.io.max.bytes.per.second",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="How many bytes per second this broker copies for moves of replicas between its log "
    "folders. What is left of a replica at the end is copied at once.",
    update=Update.CLUSTER_WIDE,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="follower.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="How many bytes per second this broker fetches for throttled replicas that are not in "
    "sync.",
    update=Update.CLUSTER_WIDE,
)
