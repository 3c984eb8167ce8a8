"""Broker 1's replica manager over logs in memory: verbs of controller, followers and clients."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import (
    DeleteOutcome,
    DeleteRecordsPartition,
    FetchOutcome,
    FetchParams,
    FetchPartition,
    Isolation,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
)
from quorate.broker.replication.commands.stray_partitions import Assignment, AssignmentCheck
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.manager import ReplicaManager, ReplicationOptions
from quorate.broker.replication.serving.replica_fetch_session import ReplicaFetchSession
from quorate.broker.replication.serving.transaction_verification import TransactionVerifier
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.clock import Clock
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import control_pb2
from tests.support.fixed_limits import FixedLimits
from tests.support.identities import registered
from tests.support.local_quorum import LocalQuorum
from tests.support.memory_log import MemoryLogStore
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import RealNetwork


def tip_of(topic: str, partition: int = 0, generation: int = 0) -> TopicIdPartition:
    return TopicIdPartition(topic_id_of(topic, generation), partition)


class QuorumImages:
    """The image of the quorum itself: a follower that is never behind."""

    def __init__(self, quorum: LocalQuorum) -> None:
        self._quorum = quorum

    @property
    def image(self) -> Any:  # noqa: ANN401 - an Image
        return self._quorum.image

    async def wait_for(self, offset: int) -> Any:  # noqa: ANN401 - an Image
        return self._quorum.image


class ChosenAssignments(AssignmentCheck):
    """A quorum that says what the test has chosen."""

    def __init__(self) -> None:
        self.unassigned_now: set[TopicIdPartition] = set()
        self.unknown: set[TopicIdPartition] = set()
        self.asked_about: list[int] = []
        """The number of partitions that the quorum was asked about, each time."""

    async def assignments(
        self, table: PartitionTable, tips: Sequence[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, Assignment]:
        self.asked_about.append(len(tips))
        return {tip: self._assignment(tip) for tip in tips}

    def _assignment(self, tip: TopicIdPartition) -> Assignment:
        if tip in self.unassigned_now:
            return Assignment.ENDED
        return Assignment.UNKNOWN if tip in self.unknown else Assignment.HOLDS


class StandingClock:
    """A clock that stands still unless it is moved."""

    def __init__(self, broker: "BrokerReplicas") -> None:
        self._broker = broker

    def now_ms(self) -> int:
        return self._broker.now_ms

    def wall_clock_ms(self) -> int:
        return self._broker.wall_clock_ms


class BrokerReplicas:
    """Start it inside a running loop; its clock stands still unless moved."""

    def __init__(
        self,
        *,
        min_insync_replicas: int = 1,
        assignments: ChosenAssignments | None = None,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        self.now_ms = 0
        self.wall_clock_ms = 0
        self.quorum = LocalQuorum()
        self.client = self.quorum.client("broker 1")
        self.assignments = ChosenAssignments() if assignments is None else assignments
        self.limits = FixedLimits(lag_time=100_000, min_insync=min_insync_replicas)
        self.store = MemoryLogStore()
        self.identity = registered(1, 5)
        self.partition_counts: dict[str, int] = {}
        """Topic → its partitions, wherever they are, as far as this broker was told."""
        self.verifier = verifier
        self.clock: Clock = StandingClock(self)
        self.manager: ReplicaManager

    async def start(self) -> "BrokerReplicas":
        await self.client.start()
        self._begin()
        return self

    async def restart(self, verifier: TransactionVerifier | None = None) -> None:
        """Begin again over the same logs."""
        await self.manager.close()
        self.verifier = verifier
        self._begin()

    def _begin(self) -> None:
        self.manager = ReplicaManager(
            self.identity,
            cast("Any", self.store),
            ReplicationOptions(),
            quorum=self.client,
            metadata=QuorumImages(self.quorum),
            assignments=self.assignments,
            limits=self.limits,
            throttles=self.limits.throttles(),
            clock=self.clock,
            network=RealNetwork(),
            partition_count=lambda topic: self.partition_counts.get(topic, 0),
            verifier=self.verifier,
        )
        self.store.tell(cast("Any", self.manager.on_flushed))
        self.manager.start()

    async def close(self) -> None:
        await self.manager.close()

    async def command(
        self,
        topic: str,
        *,
        leader: int,
        epoch: int = 0,
        version: int = 0,
        isr: tuple[int, ...] = (1, 2, 3),
        replicas: tuple[int, ...] = (1, 2, 3),
        is_init: bool = False,
        metadata_offset: int = 100,
        generation: int = 0,
        removed_at: int = 0,
    ) -> int:
        """LeaderAndIsr for partition 0 of a topic; its error code."""
        request = control_pb2.LeaderAndIsrRequest(
            header=control_pb2.ControlHeader(metadata_offset=metadata_offset), is_init=is_init
        )
        told = request.topics.add(topic=topic, topic_id=topic_id_of(topic, generation))
        told.partitions.add(
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            record_version=version,
            isr=isr,
            replicas=replicas,
            removed_at=removed_at,
        )
        (outcome,) = await self.manager.apply_leader_and_isr(request)
        assert (outcome.topic, outcome.partition) == (topic, 0)
        return outcome.error_code

    async def lead(self, topic: str, **changes: Any) -> None:  # noqa: ANN401 - as in command
        assert await self.command(topic, leader=1, **changes) == 0

    async def stop(self, topic: str, *, epoch: int, delete: bool = False) -> int:
        request = control_pb2.StopReplicaRequest()
        request.partitions.add(
            topic=topic,
            topic_id=topic_id_of(topic),
            partition=0,
            leader_epoch=epoch,
            delete_data=delete,
        )
        (outcome,) = await self.manager.stop_replicas(request)
        return outcome.error_code

    async def produce(
        self,
        topic: str,
        records: bytes,
        *,
        acks: int = -1,
        timeout_ms: int = 60_000,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> ProduceOutcome:
        entry = ProduceEntry(TopicPartition(topic, 0), records, origin)
        (outcome,) = await self.manager.produce([entry], acks, timeout_ms)
        return outcome

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        max_wait_ms: int = 0,
        epoch: int = -1,
        min_bytes: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchOutcome:
        want = FetchPartition(TopicPartition(topic, 0), offset, 1 << 20, epoch)
        terms = FetchParams(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, isolation=isolation
        )
        (outcome,) = await self.manager.fetch([want], terms)
        return outcome

    async def end_transaction(
        self, topic: str, marker: EndMarker, *, timeout_ms: int = 60_000
    ) -> int:
        """A marker; its error code."""
        entry = MarkerEntry(TopicPartition(topic, 0), marker)
        (code,) = await self.manager.write_markers([entry], timeout_ms)
        return code

    async def delete(self, topic: str, offset: int, timeout_ms: int = 60_000) -> DeleteOutcome:
        want = DeleteRecordsPartition(TopicPartition(topic, 0), offset)
        (outcome,) = await self.manager.delete_records([want], timeout_ms)
        return outcome

    def hosted(self, topic: str) -> HostedPartition:
        found = self.manager.table.named(TopicPartition(topic, 0))
        assert found is not None
        return found

    def leads(self, topic: str) -> bool:
        return self.hosted(topic).leads

    def follower(self, broker_id: int) -> "FollowerStream":
        return FollowerStream(self, broker_id)


class FollowerStream:
    """One follower's stream as its leader sees it."""

    def __init__(
        self, broker: BrokerReplicas, broker_id: int, proven: BrokerId | None = None
    ) -> None:
        """``proven``: whose certificate the connection has."""
        self.broker_id = broker_id
        self.wakes = 0
        self.session = ReplicaFetchSession(broker.manager.table, self._woken, proven)

    def send(
        self,
        topic: str | None = None,
        *,
        fetch: int = 0,
        flushed: int | None = None,
        epoch: int = 0,
        ack_only: bool = False,
        forget: bool = False,
        start: int = 0,
        max_bytes: int = 1 << 20,
        broker_epoch: int = 10,
    ) -> None:
        positions = []
        if topic is not None:
            position = ReplicaPosition(
                TopicIdPartition(topic_id_of(topic), 0),
                current_leader_epoch=epoch,
                fetch_offset=fetch,
                flushed_offset=fetch if flushed is None else flushed,
                log_start_offset=start,
                forget=forget,
            )
            positions.append(position)
        request = ReplicaFetchRequest(
            BrokerId(self.broker_id), BrokerEpoch(broker_epoch), 100, max_bytes, ack_only, positions
        )
        self.session.on_request(request)

    def has_news(self) -> bool:
        return self.session.has_news

    def receive(self) -> tuple[list[FetchedPartition], bytes]:
        response = self.session.take_response()
        return response, b"".join(chunk for fetched in response for chunk in fetched.records)

    def _woken(self) -> None:
        """Count how often the session asks to be looked at."""
        self.wakes += 1
