"""Typed answers of the admin client: frozen values, independent of the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quorate.client.errors import RequestFailed, error_name
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. ``assignments[p]`` lists the replicas of partition p, first preferred.

    ``num_partitions`` and ``replication_factor`` -1: the cluster's defaults; both are ignored
    when there are assignments.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()

    def to_proto(self) -> admin_pb2.NewTopic:
        assignments = [
            admin_pb2.ReplicaAssignment(partition=number, broker_ids=list(replicas))
            for number, replicas in enumerate(self.assignments)
        ]
        return admin_pb2.NewTopic(
            name=self.name,
            num_partitions=self.num_partitions,
            replication_factor=self.replication_factor,
            assignments=assignments,
            configs=dict(self.configs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Partitions that a topic is to get: ``count`` in all.

    ``assignments`` lists the replicas of each new partition, in order, first preferred; none: the
    controller places them.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] = ()

    def to_proto(self) -> admin_pb2.NewPartitions:
        return admin_pb2.NewPartitions(
            name=self.name,
            count=self.count,
            assignments=[admin_pb2.Replicas(broker_ids=list(one)) for one in self.assignments],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsOptions:
    """How partitions are created. ``validate_only``: check, change nothing."""

    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """Outcome for one topic; ``error`` is Kafka's error name, ``"NONE"`` for success."""

    name: str
    error_code: int
    error: str
    message: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int

    @classmethod
    def from_proto(cls, result: admin_pb2.TopicResult) -> "TopicResult":
        return cls(
            name=result.name,
            error_code=result.error_code,
            error=error_name(result.error_code),
            message=result.error_message,
            topic_id=result.topic_id,
            num_partitions=result.num_partitions,
            replication_factor=result.replication_factor,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE

    def raise_for_error(self) -> "TopicResult":
        """This result.

        Raises:
            RequestFailed: the topic was refused.
        """
        if not self.ok:
            raise RequestFailed(self.error_code, self.message or f"topic {self.name!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition; ``leader`` -1: none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic and its partitions, in order."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]

    @classmethod
    def from_proto(cls, topic: replication_pb2.TopicDescription) -> "TopicInfo":
        partitions = tuple(
            PartitionInfo(
                partition=partition.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replicas),
                isr=tuple(partition.isr),
            )
            for partition in topic.partitions
        )
        return cls(name=topic.topic, topic_id=topic.topic_id, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker. ``epoch``: metadata offset of its registration. Addresses: ``host:port``."""

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
class PartitionName:
    """A partition by name."""

    topic: str
    partition: int


class ElectionType(Enum):
    """What kind of leader is wanted (C2)."""

    PREFERRED = "preferred"
    """The first assigned replica, if it is live and in sync."""

    UNCLEAN = "unclean"
    """Any live replica where none in sync lives: records that it lacks are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """Outcome for one partition; ``error`` is Kafka's error name, ``"NONE"`` for success."""

    topic: str
    partition: int
    error_code: int
    error: str
    message: str

    @classmethod
    def from_proto(cls, result: admin_pb2.PartitionResult) -> "PartitionResult":
        return cls(
            topic=result.topic,
            partition=result.partition,
            error_code=result.error_code,
            error=error_name(result.error_code),
            message=result.error_message,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """A partition whose replicas are being moved; ``replicas``: all it has at the moment."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @classmethod
    def from_proto(cls, ongoing: admin_pb2.OngoingReassignment) -> "OngoingReassignment":
        return cls(
            topic=ongoing.topic,
            partition=ongoing.partition,
            replicas=tuple(ongoing.replicas),
            adding_replicas=tuple(ongoing.adding_replicas),
            removing_replicas=tuple(ongoing.removing_replicas),
        )


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Keys of one entity to set, or to remove where the value is None; the others stay.

    ``entity_type``: "topic" or "broker". A broker's ``entity_name`` is its id; "" is every broker
    without a value of its own.
    """

    entity_type: str
    entity_name: str
    values: Mapping[str, str | None]

    def to_proto(self) -> admin_pb2.ConfigChange:
        return admin_pb2.ConfigChange(
            entity_type=self.entity_type,
            entity_name=self.entity_name,
            values={key: value for key, value in self.values.items() if value is not None},
            removed=[key for key, value in self.values.items() if value is None],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult:
    """Outcome for one entity; ``error`` is Kafka's error name, ``"NONE"`` for success."""

    entity_type: str
    entity_name: str
    error_code: int
    error: str
    message: str

    @classmethod
    def from_proto(cls, result: admin_pb2.ConfigResult) -> "ConfigResult":
        return cls(
            entity_type=result.entity_type,
            entity_name=result.entity_name,
            error_code=result.error_code,
            error=error_name(result.error_code),
            message=result.error_message,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """A feature's level, and how high it could be raised as far as live brokers are concerned."""

    name: str
    level: int
    newest: int
    meaning: str

    @classmethod
    def from_proto(cls, feature: admin_pb2.FeatureStatus) -> "FeatureInfo":
        return cls(
            name=feature.name,
            level=feature.level,
            newest=feature.newest,
            meaning=feature.meaning,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureResult:
    """Outcome for one feature; ``level`` is in force from now on."""

    name: str
    level: int
    error_code: int
    message: str

    @classmethod
    def from_proto(cls, result: admin_pb2.FeatureResult) -> "FeatureResult":
        return cls(
            name=result.name,
            level=result.level,
            error_code=result.error_code,
            message=result.error_message,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE

    def raise_for_error(self) -> "FeatureResult":
        """This result.

        Raises:
            RequestFailed: the change was refused.
        """
        if not self.ok:
            raise RequestFailed(self.error_code, self.message or f"feature {self.name!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster as one broker knows it.

    Under its minimum, a partition refuses acks=all; at it, it would after one more failure.
    ``alerts`` are those of that broker alone: see ``AdminClient.cluster_alerts``.
    ``controller_id`` -1: none; ``quorum_leader`` 0: unknown; ``metadata_offset``: the image this
    was made from.
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
