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
