"""Topics: requests to create them, the results, and descriptions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from quorate.client.errors import ThrottlingQuotaExceededError
from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. ``assignments[p]`` lists the replicas of partition p, the preferred one
    first.

    -1 in ``num_partitions`` or ``replication_factor`` stands for the cluster's default. Both are
    ignored when there are assignments.
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
    """Partitions to add to a topic, so that it has ``count`` in all.

    ``assignments`` lists the replicas of each new partition, in order, the preferred one first.
    Without it, the controller places the replicas.
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
class CreateTopicsOptions:
    """The options of a request that creates topics. With ``validate_only``, nothing is changed.

    With ``retry_on_quota_violation``, topics refused because of the quota are requested again when
    the controller says so, as long as the client's timeout allows. Without it, and after the
    timeout, the refusal is the result (Q10).
    """

    validate_only: bool = False
    retry_on_quota_violation: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsOptions:
    """The options of a request that creates partitions; see ``CreateTopicsOptions``."""

    validate_only: bool = False
    retry_on_quota_violation: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsOptions:
    """The options of a request that deletes topics; see ``CreateTopicsOptions``."""

    retry_on_quota_violation: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult(ItemOutcome):
    """The result for one topic.

    ``throttle_time_ms`` is the time after which a request refused because of a quota may be
    repeated.
    """

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    throttle_time_ms: int = 0

    @classmethod
    def from_proto(cls, result: admin_pb2.TopicResult, throttle_time_ms: int = 0) -> "TopicResult":
        return cls(
            name=result.name,
            **outcome_of(result),
            topic_id=result.topic_id,
            num_partitions=result.num_partitions,
            replication_factor=result.replication_factor,
            throttle_time_ms=throttle_time_ms if _is_over_quota(result.error_code) else 0,
        )

    @property
    def is_over_quota(self) -> bool:
        """Return whether the request was refused for now; repeat it after ``throttle_time_ms``."""
        return _is_over_quota(self.error_code)

    def raise_for_error(self) -> Self:
        """Return this result if it is a success.

        Raises:
            ThrottlingQuotaExceededError: refused for now, because of a quota.
            RequestFailed: the topic was refused.
        """
        if self.is_over_quota:
            raise ThrottlingQuotaExceededError(
                self.throttle_time_ms, self.error_code, self._refusal()
            )
        return ItemOutcome.raise_for_error(self)

    def _refusal(self) -> str:
        return self.message or f"topic {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition; ``leader`` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """The replicas of brokers that are away, and of a partition without a leader those in log
    directories that have failed. It is empty from brokers of earlier releases."""


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
                offline=tuple(partition.offline),
            )
            for partition in topic.partitions
        )
        return cls(name=topic.topic, topic_id=topic.topic_id, partitions=partitions)


def _is_over_quota(error_code: int) -> bool:
    return error_code == errors_pb2.THROTTLING_QUOTA_EXCEEDED
