"""The leader, the ISR and the replicas of one partition, as a request or the image states them."""

from collections.abc import Iterable
from typing import NamedTuple

from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Topic
from quorate_proto.v1 import control_pb2


class LeaderAndIsr(NamedTuple):
    """The leaderAndISR record of one partition, from a controller's request or from a fresh read.

    ``version`` is the version of the record: it grows with every change of the record.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    version: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment adds: they do not count until they are in sync (C11)."""

    @classmethod
    def of_request(cls, told: control_pb2.PartitionLeadership) -> "LeaderAndIsr":
        """Return what a LeaderAndIsr request says about a partition."""
        return cls(
            BrokerId(told.leader),
            LeaderEpoch(told.leader_epoch),
            _broker_ids(told.isr),
            told.record_version,
            _broker_ids(told.replicas),
            _broker_ids(told.adding_replicas),
        )

    @classmethod
    def in_image(cls, image: Image, topic: Topic, number: int) -> "LeaderAndIsr":
        """Return what the image says about partition ``number`` of ``topic``."""
        leaf = topic.partitions[number]
        pending = image.reassignment(TopicPartition(topic.name, number))
        return cls(
            leaf.leader,
            leaf.leader_epoch,
            leaf.isr,
            leaf.version,
            leaf.replicas,
            () if pending is None else pending.adding,
        )


def _broker_ids(values: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, values))
