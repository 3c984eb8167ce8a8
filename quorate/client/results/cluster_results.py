"""The state of the cluster as a whole: brokers, controller, partitions in trouble."""

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.client.results.feature_results import FeatureInfo
from quorate.client.results.partition_results import PartitionName
from quorate_proto.v1 import admin_pb2, replication_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker.

    ``epoch`` is the metadata offset of its registration. Addresses have the form ``host:port``.
    """

    id: int
    epoch: int
    kafka: str
    grpc: str
    rack: str

    @classmethod
    def from_proto(cls, broker: replication_pb2.BrokerEndpoint) -> "BrokerInfo":
        return cls(
            id=broker.broker_id,
            epoch=broker.broker_epoch,
            kafka=f"{broker.kafka.host}:{broker.kafka.port}",
            grpc=f"{broker.grpc.host}:{broker.grpc.port}",
            rack=broker.rack,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster as one broker knows it.

    A partition under its minimum ISR refuses acks=all; a partition at its minimum would refuse it
    after one more failure. ``alerts`` are those of that broker only: see
    ``AdminClient.cluster_alerts``. ``controller_id`` is -1 while there is none, and
    ``quorum_leader`` 0 while it is unknown. ``metadata_offset`` is the offset of the image from
    which the status was made.
    """

    cluster_id: str
    controller_id: int
    controller_epoch: int
    quorum_leader: int
    metadata_offset: int
    brokers: tuple[BrokerInfo, ...]
    offline_partitions: tuple[PartitionName, ...]
    under_replicated_partitions: tuple[PartitionName, ...]
    under_min_isr_partitions: tuple[PartitionName, ...]
    at_min_isr_partitions: tuple[PartitionName, ...]
    alerts: tuple[str, ...]
    topics: int
    partitions: int
    features: tuple[FeatureInfo, ...]

    @classmethod
    def from_proto(cls, status: admin_pb2.ClusterStatusResponse) -> "ClusterStatus":
        return cls(
            cluster_id=status.cluster_id,
            controller_id=status.controller_id,
            controller_epoch=status.controller_epoch,
            quorum_leader=status.quorum_leader,
            metadata_offset=status.metadata_offset,
            brokers=tuple(
                sorted(map(BrokerInfo.from_proto, status.brokers), key=lambda broker: broker.id)
            ),
            offline_partitions=_names(status.offline_partitions),
            under_replicated_partitions=_names(status.under_replicated_partitions),
            under_min_isr_partitions=_names(status.under_min_isr_partitions),
            at_min_isr_partitions=_names(status.at_min_isr_partitions),
            alerts=tuple(status.alerts),
            topics=status.topics,
            partitions=status.partitions,
            features=tuple(map(FeatureInfo.from_proto, status.features)),
        )

    def broker(self, broker_id: int) -> BrokerInfo | None:
        return next((broker for broker in self.brokers if broker.id == broker_id), None)


def _names(references: Sequence[admin_pb2.PartitionRef]) -> tuple[PartitionName, ...]:
    return tuple(PartitionName(topic=ref.topic, partition=ref.partition) for ref in references)
