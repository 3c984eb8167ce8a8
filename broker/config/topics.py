"""Topics as they are made, and what holds for those that set nothing themselves."""

from typing import Final

from metadata_log.configuration import ConfigKey, Update

NUM_PARTITIONS: Final = ConfigKey(
    name="num.partitions",
    type=int,
    default=1,
    at_least=1,
    doc="Partitions of a topic created without a number.",
    update=Update.CLUSTER_WIDE,
)
DEFAULT_REPLICATION_FACTOR: Final = ConfigKey(
    name="default.replication.factor",
    type=int,
    default=1,
    at_least=1,
    doc="Replicas of a topic created without a number.",
    update=Update.CLUSTER_WIDE,
)
AUTO_CREATE_TOPICS_ENABLE: Final = ConfigKey(
    name="auto.create.topics.enable",
    type=bool,
    default=True,
    doc="Create a topic when a client that allows it asks for its metadata.",
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
    doc="Smallest ISR at which acks=all is accepted and the high watermark moves.",
    update=Update.CLUSTER_WIDE,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = ConfigKey(
    name="unclean.leader.election.enable",
    type=bool,
    default=False,
    doc="Let a replica outside the ISR lead when nobody in it lives: loses data (C2).",
    update=Update.CLUSTER_WIDE,
)
MESSAGE_MAX_BYTES: Final = ConfigKey(
    name="message.max.bytes",
    type=int,
    default=8 << 20,
    at_least=0,
    doc="Largest record batch accepted.",
    update=Update.CLUSTER_WIDE,
)
LOG_APPEND_TIME: Final = "LogAppendTime"
LOG_MESSAGE_TIMESTAMP_TYPE: Final = ConfigKey(
    name="log.message.timestamp.type",
    type=str,
    default="CreateTime",
    one_of=("CreateTime", LOG_APPEND_TIME),
    doc="Which time records have, for topics without message.timestamp.type: their producer's, or "
    "that at which their leader appended them.",
    update=Update.CLUSTER_WIDE,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = ConfigKey(
    name="log.message.timestamp.before.max.ms",
    type=int,
    default=2**63 - 1,
    at_least=0,
    at_most=2**63 - 1,
    doc="How old a producer's timestamp may be, for topics without message.timestamp.before.max.ms "
    "and with CreateTime. Where it is bounded, every record is looked at as it comes.",
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
"""Kafka's numbers; a type that is not here leaves the choice to the producer."""
COMPRESSION_TYPE: Final = ConfigKey(
    name="compression.type",
    type=str,
    default="producer",
    one_of=("producer", *CODEC_OF_TYPE),
    doc="How batches are stored, for topics without compression.type: as their producer sends "
    "them, or compressed anew by their leader, which costs it much more than storing them.",
    update=Update.CLUSTER_WIDE,
)
