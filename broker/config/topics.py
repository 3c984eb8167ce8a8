"""The keys of new topics, and the values for topics that set none themselves."""

from typing import Final

from quorate.common.configuration import ConfigKey, Update

NUM_PARTITIONS: Final = ConfigKey(
    name="num.partitions",
    type=int,
    default=1,
    at_least=1,
    doc="The number of partitions of a topic that is created without a number.",
    update=Update.CLUSTER_WIDE,
)
DEFAULT_REPLICATION_FACTOR: Final = ConfigKey(
    name="default.replication.factor",
    type=int,
    default=1,
    at_least=1,
    doc="The number of replicas of a topic that is created without a number.",
    update=Update.CLUSTER_WIDE,
)
MAX_BROKER_PARTITIONS: Final = ConfigKey(
    name="max.broker.partitions",
    type=int,
    default=100_000,
    at_least=1,
    doc="The most replicas of partitions that a broker may hold (KIP-578). Topics and partitions "
    "by which a broker would hold more are not created; replicas may still be moved to it. A lower "
    "limit may be noticed only after 10,000 further replicas.",
    update=Update.CLUSTER_WIDE,
)
AUTO_CREATE_TOPICS_ENABLE: Final = ConfigKey(
    name="auto.create.topics.enable",
    type=bool,
    default=True,
    doc="Create a topic when a client that allows it asks for the metadata of the topic.",
    update=Update.CLUSTER_WIDE,
)
DELETE_TOPIC_ENABLE: Final = ConfigKey(
    name="delete.topic.enable",
    type=bool,
    default=True,
    doc="Whether topics can be deleted.",
    update=Update.CLUSTER_WIDE,
)
MIN_INSYNC_REPLICAS: Final = ConfigKey(
    name="min.insync.replicas",
    type=int,
    default=1,
    at_least=1,
    doc="The smallest ISR with which a produce request with acks=all is accepted and the high "
    "watermark advances.",
    update=Update.CLUSTER_WIDE,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = ConfigKey(
    name="unclean.leader.election.enable",
    type=bool,
    default=False,
    doc="Let a replica outside the ISR become leader when no replica of the ISR is alive. This "
    "loses data (C2).",
    update=Update.CLUSTER_WIDE,
)
MESSAGE_MAX_BYTES: Final = ConfigKey(
    name="message.max.bytes",
    type=int,
    default=8 << 20,
    at_least=0,
    doc="The largest record batch that is accepted.",
    update=Update.CLUSTER_WIDE,
)
MESSAGE_MAX_DECOMPRESSED_BYTES: Final = ConfigKey(
    name="message.max.decompressed.bytes",
    type=int,
    default=64 << 20,
    at_least=1 << 20,
    at_most=256 << 20,
    doc="The largest size of the decompressed records of a batch that a producer sends. Two "
    "batches at a time are decompressed to be validated.",
    update=Update.CLUSTER_WIDE,
)
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
LOG_MESSAGE_TIMESTAMP_TYPE: Final = ConfigKey(
    name="log.message.timestamp.type",
    type=str,
    default="CreateTime",
    one_of=(CREATE_TIME, LOG_APPEND_TIME),
    doc="Which timestamp records have, for topics without message.timestamp.type: that of their "
    "producer, or the time at which their leader appended them.",
    update=Update.CLUSTER_WIDE,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = ConfigKey(
    name="log.message.timestamp.before.max.ms",
    type=int,
    default=2**63 - 1,
    at_least=0,
    at_most=2**63 - 1,
    doc="How old a producer's timestamp may be, for topics without "
    "message.timestamp.before.max.ms and with CreateTime. With a limit, the leader checks the "
    "timestamp of every record.",
    update=Update.CLUSTER_WIDE,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = ConfigKey(
    name="log.message.timestamp.after.max.ms",
    type=int,
    default=3_600_000,
    at_least=0,
    at_most=2**63 - 1,
    doc="How far ahead of this broker's clock a producer's timestamp may be, for topics without "
    "message.timestamp.after.max.ms and with CreateTime.",
    update=Update.CLUSTER_WIDE,
)
CODEC_OF_TYPE: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's numbers of the compression types. With a type that is not here, the producer chooses."""
COMPRESSION_TYPE: Final = ConfigKey(
    name="compression.type",
    type=str,
    default="producer",
    one_of=("producer", *CODEC_OF_TYPE),
    doc="How batches are stored, for topics without compression.type: as their producer sends "
    "them, or compressed again by their leader. Compressing costs the leader much more than "
    "storing.",
    update=Update.CLUSTER_WIDE,
)
