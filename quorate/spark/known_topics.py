"""Remembers what a client was last told of topics: who leads their partitions, and who else has a
copy."""

from dataclasses import dataclass

from quorate.client.bootstrap import format_address
from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import DescribedTopic
from quorate_proto.v1.replication_pb2 import DescribeTopicsResponse, PartitionDescription


@dataclass(frozen=True, slots=True)
class Replica:
    """A broker that has a copy of a partition, and the leader epoch in which it was described."""

    address: str
    """Its gRPC address."""
    leads: bool
    leader_epoch: int

    def __str__(self) -> str:
        return self.address if self.leads else f"{self.address}, a follower"


class KnownTopics:
    """The topics that a client has asked for, as they were described last."""

    def __init__(self) -> None:
        self._replicas: dict[TopicPartition, tuple[Replica, ...]] = {}
        self._topics: dict[str, DescribedTopic] = {}

    def remember(self, response: DescribeTopicsResponse) -> list[str]:
        """Take in what a broker has told; return the gRPC addresses of all brokers."""
        address_by_id = {
            broker.broker_id: format_address(broker.grpc.host, broker.grpc.port)
            for broker in response.brokers
        }
        for topic in response.topics:
            self._topics.pop(topic.topic, None)
            if not topic.error_code:
                self._topics[topic.topic] = DescribedTopic(topic.topic_id, len(topic.partitions))
            for described in topic.partitions:
                partition = TopicPartition(topic.topic, described.partition)
                self._replicas[partition] = _replicas(described, address_by_id)
        return list(address_by_id.values())

    def replicas_of(self, partition: TopicPartition) -> tuple[Replica, ...]:
        """Return the live replicas in sync, the leader first; none if it is not known to lead."""
        return self._replicas.get(partition, ())

    def leader_of(self, partition: TopicPartition) -> str | None:
        """Return the gRPC address of the leader; None if there is no leader."""
        return next((one.address for one in self.replicas_of(partition)), None)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of the topic of that name; None if there is no such topic."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def exists(self, partition: TopicPartition) -> bool:
        """Return True if the cluster has the partition."""
        known = self._topics.get(partition.topic)
        return known is not None and partition.partition < known.partitions


def _replicas(
    described: PartitionDescription, address_by_id: dict[int, str]
) -> tuple[Replica, ...]:
    if described.leader not in address_by_id:
        return ()
    leader_first = sorted(described.isr, key=lambda broker_id: broker_id != described.leader)
    ids = dict.fromkeys([described.leader, *leader_first])
    return tuple(
        Replica(address_by_id[one], one == described.leader, described.leader_epoch)
        for one in ids
        if one in address_by_id
    )
