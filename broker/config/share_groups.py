"""The keys of share groups (KIP-932) and of their coordinator, with Kafka's names and defaults.

A key that a group may have a value of its own for is the value of the groups that have none.
"""

from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, Update, Values

GROUP_SHARE_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.share.session.timeout.ms",
    type=int,
    default=45_000,
    at_least=1,
    at_most=2**31 - 1,
    doc="How long a member of a share group may be silent before it is removed.",
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.share.min.session.timeout.ms",
    type=int,
    default=45_000,
    at_least=1,
    doc="The least value of group.share.session.timeout.ms, and of a group's own.",
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.share.max.session.timeout.ms",
    type=int,
    default=60_000,
    at_least=1,
    doc="The greatest value of group.share.session.timeout.ms, and of a group's own.",
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.heartbeat.interval.ms",
    type=int,
    default=5_000,
    at_least=1,
    at_most=2**31 - 1,
    doc="How often members of a share group are told to heartbeat. It must be less than their "
    "session timeout.",
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.min.heartbeat.interval.ms",
    type=int,
    default=5_000,
    at_least=1,
    doc="The least value of group.share.heartbeat.interval.ms, and of a group's own.",
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.max.heartbeat.interval.ms",
    type=int,
    default=15_000,
    at_least=1,
    doc="The greatest value of group.share.heartbeat.interval.ms, and of a group's own.",
)
GROUP_SHARE_MAX_SIZE: Final = ConfigKey(
    name="group.share.max.size",
    type=int,
    default=200,
    at_least=1,
    at_most=1_000,
    doc="The most members that a share group may have.",
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.assignment.interval.ms",
    type=int,
    default=1_000,
    at_least=0,
    at_most=2**31 - 1,
    doc="The least time between two target assignments of a share group (KIP-1263).",
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.min.assignment.interval.ms",
    type=int,
    default=0,
    at_least=0,
    doc="The least value of group.share.assignment.interval.ms, and of a group's own.",
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.share.max.assignment.interval.ms",
    type=int,
    default=15_000,
    at_least=0,
    doc="The greatest value of group.share.assignment.interval.ms, and of a group's own.",
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Final = ConfigKey(
    name="group.share.delivery.count.limit",
    type=int,
    default=5,
    at_least=2,
    at_most=10,
    doc="How often a record is delivered to a share group, if nobody accepts or rejects it.",
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Final = ConfigKey(
    name="group.share.min.delivery.count.limit",
    type=int,
    default=2,
    at_least=2,
    at_most=5,
    doc="The least value of a group's own share.delivery.count.limit.",
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Final = ConfigKey(
    name="group.share.max.delivery.count.limit",
    type=int,
    default=10,
    at_least=5,
    at_most=25,
    doc="The greatest value of a group's own share.delivery.count.limit.",
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Final = ConfigKey(
    name="group.share.record.lock.duration.ms",
    type=int,
    default=30_000,
    at_least=1_000,
    at_most=3_600_000,
    doc="How long a member of a share group has a record to itself. Then the record is available "
    "to the others again, unless the member has acknowledged it or renewed its lock.",
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Final = ConfigKey(
    name="group.share.min.record.lock.duration.ms",
    type=int,
    default=15_000,
    at_least=1_000,
    at_most=30_000,
    doc="The least value of group.share.record.lock.duration.ms, and of a group's own.",
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Final = ConfigKey(
    name="group.share.max.record.lock.duration.ms",
    type=int,
    default=60_000,
    at_least=30_000,
    at_most=3_600_000,
    doc="The greatest value of group.share.record.lock.duration.ms, and of a group's own.",
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Final = ConfigKey(
    name="group.share.partition.max.record.locks",
    type=int,
    default=2_000,
    at_least=100,
    at_most=10_000,
    doc="The most records of a partition that a share group works at: from the first that nobody "
    "has accepted or rejected to the last that was handed out.",
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Final = ConfigKey(
    name="group.share.min.partition.max.record.locks",
    type=int,
    default=100,
    at_least=100,
    at_most=2_000,
    doc="The least value of a group's own share.partition.max.record.locks.",
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Final = ConfigKey(
    name="group.share.max.partition.max.record.locks",
    type=int,
    default=4_000,
    at_least=2_000,
    at_most=10_000,
    doc="The greatest value of group.share.partition.max.record.locks, and of a group's own.",
)
GROUP_SHARE_MAX_SHARE_SESSIONS: Final = ConfigKey(
    name="group.share.max.share.sessions",
    type=int,
    default=2_000,
    at_least=1,
    doc="The most share sessions of a broker: each member has one with each broker that it fetches "
    "from.",
)
SHARE_STATE_TOPIC_NUM_PARTITIONS: Final = ConfigKey(
    name="share.coordinator.state.topic.num.partitions",
    type=int,
    default=50,
    at_least=1,
    doc="The number of partitions of __share_group_state, which is created when the first member "
    "joins a share group.",
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR: Final = ConfigKey(
    name="share.coordinator.state.topic.replication.factor",
    type=int,
    default=3,
    at_least=1,
    doc="The number of replicas of __share_group_state. In a cluster with fewer live brokers it "
    "gets as many as there are; `quorate reassign` raises it later.",
)
SHARE_STATE_TOPIC_MIN_ISR: Final = ConfigKey(
    name="share.coordinator.state.topic.min.isr",
    type=int,
    default=2,
    at_least=1,
    doc="The min.insync.replicas of __share_group_state when it is created. It is never more than "
    "the number of its replicas.",
)
SHARE_SNAPSHOT_UPDATE_RECORDS: Final = ConfigKey(
    name="share.coordinator.snapshot.update.records.per.snapshot",
    type=int,
    default=500,
    at_least=0,
    at_most=500,
    doc="How many updates of a share-partition are written between two snapshots of its state.",
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS: Final = ConfigKey(
    name="share.coordinator.write.timeout.ms",
    type=int,
    default=5_000,
    at_least=1,
    doc="How long a write to __share_group_state waits for all in-sync replicas.",
)
SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS: Final = ConfigKey(
    name="share.coordinator.state.topic.prune.interval.ms",
    type=int,
    default=300_000,
    at_least=1,
    doc="How often the share coordinator deletes records of __share_group_state that later "
    "snapshots have made needless.",
)
SHARE_COLD_PARTITION_SNAPSHOT_INTERVAL_MS: Final = ConfigKey(
    name="share.coordinator.cold.partition.snapshot.interval.ms",
    type=int,
    default=300_000,
    at_least=1,
    doc="After how long the state of a share-partition that does not change is written again, so "
    "that older records can be deleted.",
)
DEAD_LETTER_TOPIC_NAME_PREFIX: Final = ConfigKey(
    name="errors.deadletterqueue.topic.name.prefix",
    type=str,
    default="dlq.",
    pattern=r"[A-Za-z0-9._-]{0,249}",
    form="the beginning of the name of a topic, or nothing",
    doc="What the names of dead letter topics must begin with (KIP-1191).",
    update=Update.CLUSTER_WIDE,
)
DEAD_LETTER_AUTO_CREATE_TOPICS_ENABLE: Final = ConfigKey(
    name="errors.deadletterqueue.auto.create.topics.enable",
    type=bool,
    default=False,
    doc="Whether the dead letter topic of a share group is created when its first dead letter is "
    "written (KIP-1191).",
    update=Update.CLUSTER_WIDE,
)

_Bounds = tuple[ConfigKey[int], ConfigKey[int], ConfigKey[int]]

BOUNDS: Final[tuple[_Bounds, ...]] = (
    (
        GROUP_SHARE_SESSION_TIMEOUT_MS,
        GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
        GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    ),
    (
        GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
        GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
        GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (
        GROUP_SHARE_DELIVERY_COUNT_LIMIT,
        GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
        GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    ),
    (
        GROUP_SHARE_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (
        GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
)
"""Each key with its least and its greatest value."""


def check_share_groups(config: Values) -> None:
    """Check what the keys of share groups say together.

    Raises:
        ConfigError: a value is beyond its limits, or heartbeats would come too late.
    """
    for key, least, most in BOUNDS:
        if not config[least] <= config[key] <= config[most]:
            raise ConfigError(
                f"{key.name}={config[key]}: must be from {least.name}, which is {config[least]}, "
                f"to {most.name}, which is {config[most]}"
            )
    heartbeat, session = GROUP_SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_SESSION_TIMEOUT_MS
    if config[heartbeat] >= config[session]:
        raise ConfigError(
            f"{heartbeat.name}={config[heartbeat]}: must be less than {session.name}, which is "
            f"{config[session]}"
        )
