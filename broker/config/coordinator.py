"""The keys of the group and transaction coordinators and of their internal topics, with Kafka's
names and defaults."""

from typing import Final

from quorate.common.configuration import ConfigKey

_CAPPED: Final = (
    "In a cluster with fewer live brokers it gets as many as there are; `quorate reassign` raises "
    "it later."
)

OFFSETS_TOPIC_NUM_PARTITIONS: Final = ConfigKey(
    name="offsets.topic.num.partitions",
    type=int,
    default=50,
    at_least=1,
    doc="The number of partitions of __consumer_offsets, which is created when a client first "
    "looks for the coordinator of a group.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = ConfigKey(
    name="offsets.topic.replication.factor",
    type=int,
    default=3,
    at_least=1,
    doc="The number of replicas of __consumer_offsets. In a cluster with fewer live brokers it "
    "gets as many as there are; `quorate reassign` raises it later.",
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = ConfigKey(
    name="transaction.state.log.num.partitions",
    type=int,
    default=50,
    at_least=1,
    doc="The number of partitions of __transaction_state, which is created when a client first "
    "looks for the coordinator of a transaction.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = ConfigKey(
    name="transaction.state.log.replication.factor",
    type=int,
    default=3,
    at_least=1,
    doc="The number of replicas of __transaction_state. In a cluster with fewer live brokers it "
    "gets as many as there are; `quorate reassign` raises it later.",
)
OFFSET_METADATA_MAX_BYTES: Final = ConfigKey(
    name="offset.metadata.max.bytes",
    type=int,
    default=4096,
    at_least=0,
    doc="The largest metadata text that a client may store with a committed offset.",
)
OFFSETS_COMMIT_TIMEOUT_MS: Final = ConfigKey(
    name="offsets.commit.timeout.ms",
    type=int,
    default=5_000,
    at_least=1,
    doc="How long a commit waits for all in-sync replicas before its client is told to try again.",
)
OFFSETS_RETENTION_MINUTES: Final = ConfigKey(
    name="offsets.retention.minutes",
    type=int,
    default=7 * 24 * 60,
    at_least=1,
    doc="How long the offsets of a group are kept after its last member has left.",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="offsets.retention.check.interval.ms",
    type=int,
    default=600_000,
    at_least=1,
    doc="How often the broker checks for expired offsets.",
)
GROUP_MIN_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.min.session.timeout.ms",
    type=int,
    default=6_000,
    at_least=1,
    doc="The shortest session timeout that a consumer may ask for.",
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.max.session.timeout.ms",
    type=int,
    default=1_800_000,
    at_least=1,
    doc="The longest session timeout that a consumer may ask for.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = ConfigKey(
    name="group.initial.rebalance.delay.ms",
    type=int,
    default=3_000,
    at_least=0,
    doc="How long a group that was empty waits for more members before it assigns partitions.",
)
GROUP_MAX_SIZE: Final = ConfigKey(
    name="group.max.size",
    type=int,
    default=2**31 - 1,
    at_least=1,
    doc="The most members that a group may have.",
)
TRANSACTION_STATE_LOG_MIN_ISR: Final = ConfigKey(
    name="transaction.state.log.min.isr",
    type=int,
    default=2,
    at_least=1,
    doc="The min.insync.replicas of __transaction_state when it is created. It is never more than "
    "the number of its replicas.",
)
TRANSACTION_MAX_TIMEOUT_MS: Final = ConfigKey(
    name="transaction.max.timeout.ms",
    type=int,
    default=900_000,
    at_least=1,
    doc="The longest transaction.timeout.ms that a producer may ask for. An open transaction "
    "keeps consumers with read_committed waiting for so long.",
)
TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS: Final = ConfigKey(
    name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
    type=int,
    default=10_000,
    at_least=1,
    doc="How often the broker checks for transactions whose timeout has passed, and aborts them.",
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = ConfigKey(
    name="transactional.id.expiration.ms",
    type=int,
    default=7 * 24 * 3_600_000,
    at_least=1,
    doc="How long a transactional id is remembered after its last transaction.",
)
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS: Final = ConfigKey(
    name="transaction.remove.expired.transaction.cleanup.interval.ms",
    type=int,
    default=3_600_000,
    at_least=1,
    doc="How often the broker checks for expired transactional ids.",
)
