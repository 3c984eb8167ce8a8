"""An admin client whose cluster is in memory: replicas move when the test says so."""

from collections.abc import Mapping, Sequence

from quorate.client.admin import AdminClient
from quorate.client.results import (
    BrokerInfo,
    ClusterStatus,
    ConfigChange,
    ConfigResult,
    OngoingReassignment,
    PartitionInfo,
    PartitionName,
    PartitionResult,
    TopicInfo,
)
from quorate.reassignment.reassignment_plan import Replicas


def named(topic: str, partition: int = 0) -> PartitionName:
    return PartitionName(topic=topic, partition=partition)


class FakeAdmin(AdminClient):
    """An admin client of a cluster in memory."""

    def __init__(
        self, racks: Mapping[int, str], replicas: Mapping[PartitionName, Replicas]
    ) -> None:
        """
        Args:
            racks: the rack of every live broker.
            replicas: the replicas by partition, all partitions of a topic in order.
        """
        self.racks = dict(racks)
        self.replicas = dict(replicas)
        self.moving: dict[PartitionName, Replicas] = {}
        self.asked: list[Mapping[PartitionName, Sequence[int] | None]] = []
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        self.refuse: dict[PartitionName, int] = {}
        self.moves_when_listed = False
        """True if every move ends once it has been listed."""

    def __enter__(self) -> "FakeAdmin":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def cluster_status(self) -> ClusterStatus:
        brokers = tuple(
            BrokerInfo(id=one, epoch=1, kafka=f"h{one}:9092", grpc=f"h{one}:1", rack=rack)
            for one, rack in self.racks.items()
        )
        values: dict[str, object] = dict.fromkeys(ClusterStatus.__dataclass_fields__, ())
        return ClusterStatus(**(values | {"brokers": brokers}))  # type: ignore[arg-type]

    def list_topics(self) -> list[str]:
        return sorted({name.topic for name in self.replicas})

    def describe_topics(self, names: Sequence[str] = ()) -> list[TopicInfo]:
        return [self._topic(topic) for topic in names or self.list_topics()]

    def _topic(self, topic: str) -> TopicInfo:
        partitions = tuple(
            PartitionInfo(
                partition=name.partition,
                leader=replicas[0],
                leader_epoch=0,
                replicas=replicas,
                isr=replicas,
            )
            for name, replicas in self.replicas.items()
            if name.topic == topic
        )
        return TopicInfo(name=topic, topic_id=b"", partitions=partitions)

    def alter_partition_reassignments(
        self,
        targets: Mapping[PartitionName, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> list[PartitionResult]:
        self.asked.append(targets)
        return [self._alter(name, target) for name, target in targets.items()]

    def _alter(self, name: PartitionName, target: Sequence[int] | None) -> PartitionResult:
        code = self.refuse.get(name, 0)
        if not code and target is None:
            self.moving.pop(name)
        elif not code and target is not None and tuple(target) != self.replicas[name]:
            self.moving[name] = tuple(target)
        return PartitionResult(
            topic=name.topic,
            partition=name.partition,
            error_code=code,
            error=str(code) if code else "NONE",
            message="refused" if code else "",
        )

    def list_partition_reassignments(
        self, partitions: Sequence[PartitionName] | None = None
    ) -> list[OngoingReassignment]:
        found = [
            OngoingReassignment(
                topic=name.topic,
                partition=name.partition,
                replicas=(*self.replicas[name], *(set(target) - set(self.replicas[name]))),
                adding_replicas=tuple(set(target) - set(self.replicas[name])),
                removing_replicas=tuple(set(self.replicas[name]) - set(target)),
            )
            for name, target in self.moving.items()
        ]
        if self.moves_when_listed:
            self.finish()
        return found

    def finish(self) -> None:
        """End every move that is in progress."""
        self.replicas.update(self.moving)
        self.moving.clear()

    def incremental_alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ConfigResult]:
        for change in changes:
            values = self.configs.setdefault((change.entity_type, change.entity_name), {})
            for key, value in change.values.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
        return [
            ConfigResult(
                entity_type=change.entity_type,
                entity_name=change.entity_name,
                error_code=0,
                error="NONE",
                message="",
            )
            for change in changes
        ]

    @property
    def configured(self) -> dict[tuple[str, str], dict[str, str]]:
        """The configs of all entities that have any."""
        return {entity: dict(values) for entity, values in self.configs.items() if values}
