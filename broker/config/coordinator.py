"""The topics in which coordinators keep what they know. Kafka's names and defaults."""

from typing import Final

from metadata_log.configuration import ConfigKey

_CAPPED: Final = (
    "In a cluster with fewer live brokers it gets as many as there are; `quorate reassign` raises "
    "it later."
)

OFFSETS_TOPIC_NUM_PARTITIONS: Final = ConfigKey(
    name="offsets.topic.num.partitions",
    type=int,
    default=50,
    at_least=1,
    doc="Partitions of __consumer_offsets, which is created when a group is first asked for.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = ConfigKey(
    name="offsets.topic.replication.factor",
    type=int,
    default=3,
    at_least=1,
    doc=f"Replicas of __consumer_offsets. {_CAPPED}",
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = ConfigKey(
    name="transaction.state.log.num.partitions",
    type=int,
    default=50,
    at_least=1,
    doc="Partitions of __transaction_state, created when a transaction is first asked for.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = ConfigKey(
    name="transaction.state.log.replication.factor",
    type=int,
    default=3,
    at_least=1,
    doc=f"Replicas of __transaction_state. {_CAPPED}",
)
