"""A partition's leadership as a message or an image has it."""

from collections.abc import Iterable

from broker.replication.partition.effects import Leadership
from metadata_log.image import Image, Topic
from metadata_log.types import BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import control_pb2


def told_leadership(told: control_pb2.PartitionLeadership) -> Leadership:
    """As a LeaderAndIsr request tells it."""
    return Leadership(
        BrokerId(told.leader),
        LeaderEpoch(told.leader_epoch),
        _ids(told.isr),
        told.record_version,
        _ids(told.replicas),
        _ids(told.adding_replicas),
    )


def leadership_in(image: Image, topic: Topic, number: int) -> Leadership:
    """As the image has it."""
    leaf = topic.partitions[number]
    pending = image.reassignment(TopicPartition(topic.name, number))
    return Leadership(
        leaf.leader,
        leaf.leader_epoch,
        leaf.isr,
        leaf.version,
        leaf.replicas,
        () if pending is None else pending.adding,
    )


def _ids(values: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, values))
