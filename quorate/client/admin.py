"""The admin client: topics, status and the controller, over gRPC, straight to the controller."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from quorate.client.bootstrap import discover
from quorate.client.connection import BrokerStubs, ClusterConnection
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    ClusterStatus,
    ConfigChange,
    ConfigResult,
    CreatePartitionsOptions,
    ElectionType,
    FeatureResult,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    PartitionName,
    PartitionResult,
    TopicInfo,
    TopicResult,
)
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2

DEFAULT_TIMEOUT_MS: Final = 30_000

_EVERY_TOPIC: Final = replication_pb2.DescribeTopicsRequest(all=True)


_ELECTION_TYPES: Final = {
    ElectionType.PREFERRED: admin_pb2.ELECTION_PREFERRED,
    ElectionType.UNCLEAN: admin_pb2.ELECTION_UNCLEAN,
}


class ControllerAnswer(Protocol):
    """What every answer of a controller has: the error code of the request as a whole."""

    error_code: int


Answer = TypeVar("Answer", bound=ControllerAnswer)


class AdminClient:
    """Administers a cluster. Use as a context manager, or ``close()`` it.

    ``bootstrap_servers``: Kafka addresses, ``host:port,host:port``; the gRPC ones are found through
    them. ``grpc_addresses``: gRPC addresses of brokers, where they are known already.
    Every method raises ``ClusterUnreachable`` when nobody answers within ``timeout_ms``. Outcomes
    per topic are values: look at ``TopicResult.ok`` or call ``raise_for_error()``.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        grpc_addresses: Sequence[str] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        client_id: str = "quorate-admin",
    ) -> None:
        if (bootstrap_servers is None) == (not grpc_addresses):
            raise ValueError("give either bootstrap_servers or grpc_addresses")
        self._timeout_ms = timeout_ms
        self._client_id = client_id

        def addresses() -> Iterable[str]:
            if bootstrap_servers is None:
                return grpc_addresses
            found = discover(bootstrap_servers)
            return [broker.grpc for broker in found.brokers if broker.grpc]

        self._connection = ClusterConnection(
            addresses, description=bootstrap_servers or ",".join(grpc_addresses)
        )

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """One result per topic, in order."""
        request = admin_pb2.CreateTopicsRequest(
            context=self._context("CreateTopics"),
            topics=[topic.to_proto() for topic in topics],
            validate_only=validate_only,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.CreateTopics(request, timeout=timeout_s),
            "creating topics",
        )
        return [TopicResult.from_proto(result) for result in answer.topics]

    def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """One result per name, in order."""
        request = admin_pb2.DeleteTopicsRequest(
            context=self._context("DeleteTopics"), names=list(names)
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.DeleteTopics(request, timeout=timeout_s),
            "deleting topics",
        )
        return [TopicResult.from_proto(result) for result in answer.topics]

    def create_partitions(
        self,
        partitions: Sequence[NewPartitions],
        options: CreatePartitionsOptions = CreatePartitionsOptions(),  # noqa: B008 - frozen
    ) -> list[TopicResult]:
        """One result per topic, in order."""
        request = admin_pb2.CreatePartitionsRequest(
            context=self._context("CreatePartitions"),
            topics=[topic.to_proto() for topic in partitions],
            validate_only=options.validate_only,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.CreatePartitions(request, timeout=timeout_s),
            "adding partitions",
        )
        return [TopicResult.from_proto(result) for result in answer.topics]

    def remove_partitions(
        self, partitions: Sequence[PartitionName], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Remove partitions and their data: the highest ones of each topic. One result per topic.

        What is added later under their numbers begins empty.
        """
        request = admin_pb2.RemovePartitionsRequest(
            context=self._context("RemovePartitions"),
            topics=_by_topic(partitions),
            validate_only=validate_only,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.RemovePartitions(request, timeout=timeout_s),
            "removing partitions",
        )
        return [TopicResult.from_proto(result) for result in answer.topics]

    def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[PartitionName] | None = None
    ) -> list[PartitionResult]:
        """One result per partition; None: all partitions, without those that need no election."""
        request = admin_pb2.ElectLeadersRequest(
            context=self._context("ElectLeaders"),
            election_type=_ELECTION_TYPES[election_type],
            topics=_by_topic(partitions or ()),
            all_partitions=partitions is None,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.ElectLeaders(request, timeout=timeout_s),
            "electing leaders",
        )
        return [PartitionResult.from_proto(result) for result in answer.partitions]

    def alter_partition_reassignments(
        self,
        targets: Mapping[PartitionName, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> list[PartitionResult]:
        """Move each partition to its target, first replica preferred; None cancels a move.

        One result per partition, once that is decided: the moves themselves take their time, see
        ``list_partition_reassignments``.
        """
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            context=self._context("AlterPartitionReassignments"),
            partitions=[
                admin_pb2.WantedReassignment(
                    topic=name.topic,
                    partition=name.partition,
                    replicas=target or (),
                    cancel=target is None,
                )
                for name, target in targets.items()
            ],
            allow_replication_factor_change=allow_replication_factor_change,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.AlterPartitionReassignments(
                request, timeout=timeout_s
            ),
            "moving replicas",
        )
        return [PartitionResult.from_proto(result) for result in answer.partitions]

    def list_partition_reassignments(
        self, partitions: Sequence[PartitionName] | None = None
    ) -> list[OngoingReassignment]:
        """Moves under way, of ``partitions`` or of all, sorted."""
        request = admin_pb2.ListPartitionReassignmentsRequest(
            context=self._context("ListPartitionReassignments"),
            all=partitions is None,
            partitions=[
                admin_pb2.PartitionRef(topic=name.topic, partition=name.partition)
                for name in partitions or ()
            ],
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.ListPartitionReassignments(
                request, timeout=timeout_s
            ),
            "listing reassignments",
        )
        return [OngoingReassignment.from_proto(one) for one in answer.partitions]

    def alter_configs(self, changes: Sequence[ConfigChange]) -> list[ConfigResult]:
        """Set and remove configuration keys; one result per entity, in order."""
        request = admin_pb2.IncrementalAlterConfigsRequest(
            context=self._context("IncrementalAlterConfigs"),
            changes=[change.to_proto() for change in changes],
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.IncrementalAlterConfigs(
                request, timeout=timeout_s
            ),
            "changing configurations",
        )
        return [ConfigResult.from_proto(result) for result in answer.results]

    def list_topics(self) -> list[str]:
        """Names of all topics, sorted."""
        return sorted(topic.topic for topic in self._describe(_EVERY_TOPIC).topics)

    def describe_topics(self, names: Sequence[str] = ()) -> list[TopicInfo]:
        """The topics of those names, or all of them, sorted by name.

        Raises:
            RequestFailed: UNKNOWN_TOPIC_OR_PARTITION, naming the topic.
        """
        request = (
            replication_pb2.DescribeTopicsRequest(topics=list(names)) if names else _EVERY_TOPIC
        )
        answer = self._describe(request)
        for topic in answer.topics:
            _check(topic.error_code, f"topic {topic.topic!r} does not exist")
        return sorted(map(TopicInfo.from_proto, answer.topics), key=lambda topic: topic.name)

    def cluster_status(self) -> ClusterStatus:
        """The cluster as the first broker that answers knows it."""
        answer = self._connection.on_any(
            lambda stubs, timeout_s: stubs.admin.ClusterStatus(
                admin_pb2.ClusterStatusRequest(), timeout=timeout_s
            ),
            timeout_ms=self._timeout_ms,
        )
        return ClusterStatus.from_proto(answer)

    def cluster_alerts(self) -> list[str]:
        """What needs an operator's eye, asked of every live broker (C18, rule 6).

        The controller alone knows which control requests have no answer, each broker whether it
        has lost sight of the quorum; one that does not answer is an alert itself.
        """
        brokers = {broker.grpc: broker for broker in self.cluster_status().brokers}
        answers = self._connection.on_each(
            brokers,
            lambda stubs, timeout_s: stubs.admin.ClusterStatus(
                admin_pb2.ClusterStatusRequest(), timeout=timeout_s
            ),
            timeout_ms=self._timeout_ms,
        )
        alerts = {alert for answer in answers.values() if answer for alert in answer.alerts}
        alerts |= {
            f"broker {brokers[address].id} does not answer at {address}"
            for address, answer in answers.items()
            if answer is None
        }
        return sorted(alerts)

    def resign_controller(self) -> int:
        """Makes the controller give up its office (E5); the controller epoch it gave up."""
        request = admin_pb2.ResignControllerRequest(context=self._context("ResignController"))
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.ResignController(request, timeout=timeout_s),
            "resigning the controller",
        )
        self._connection.forget_controller()
        return answer.controller_epoch

    def move_controller(self, to: int) -> int:
        """Hands the controller's office to broker ``to`` (E5); the new controller epoch.

        Raises:
            RequestFailed: ``to`` is no live broker.
        """
        request = admin_pb2.MoveControllerRequest(
            context=self._context("MoveController"), broker_id=to
        )
        answer = self._connection.on_controller(
            lambda stubs, timeout_s: stubs.admin.MoveController(request, timeout=timeout_s),
            lambda answer: answer.error_code,
            timeout_ms=self._timeout_ms,
        )
        _check(answer.error_code, answer.error_message)
        self._connection.forget_controller()
        return answer.controller_epoch

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        allow_downgrade: bool = False,
        validate_only: bool = False,
    ) -> list[FeatureResult]:
        """Raises or lowers features (B4), each on its own; level 0: what everybody understands."""
        request = admin_pb2.UpdateFeaturesRequest(
            context=self._context("UpdateFeatures"),
            updates=[
                admin_pb2.FeatureUpdate(name=name, level=level, allow_downgrade=allow_downgrade)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        answer = self._on_controller(
            lambda stubs, timeout_s: stubs.admin.UpdateFeatures(request, timeout=timeout_s),
            "updating features",
        )
        return [FeatureResult.from_proto(result) for result in answer.results]

    def _on_controller(self, call: Callable[[BrokerStubs, float], Answer], what: str) -> Answer:
        """The controller's answer to ``call(stubs, timeout_s)``.

        Raises:
            RequestFailed: the request as a whole was refused; ``what`` says what was wanted.
        """
        answer = self._connection.on_controller(
            call, lambda answer: answer.error_code, timeout_ms=self._timeout_ms
        )
        _check(answer.error_code, what)
        return answer

    def _describe(
        self, request: replication_pb2.DescribeTopicsRequest
    ) -> replication_pb2.DescribeTopicsResponse:
        return self._connection.on_any(
            lambda stubs, timeout_s: stubs.range_read.DescribeTopics(request, timeout=timeout_s),
            timeout_ms=self._timeout_ms,
        )

    def _context(self, api_name: str) -> admin_pb2.RequestContext:
        return admin_pb2.RequestContext(
            client_id=self._client_id,
            timeout_ms=self._timeout_ms,
            forwarded_by=-1,
            api_name=api_name,
        )


def _by_topic(partitions: Iterable[PartitionName]) -> list[admin_pb2.TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return [
        admin_pb2.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in topics.items()
    ]


def _check(code: int, message: str) -> None:
    if code != errors_pb2.NONE:
        raise RequestFailed(code, message)
