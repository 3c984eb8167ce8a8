"""Broker 1's replica manager over logs in memory: verbs of controller, followers and clients."""

from collections.abc import Sequence
from typing import Any, cast

from broker.log.admission import Origin
from broker.log.control_batches import EndMarker
from broker.peers import open_channel
from broker.replication.api import (
    DeleteOutcome,
    DeleteWant,
    FetchOutcome,
    FetchTerms,
    FetchWant,
    Isolation,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
)
from broker.replication.fetch_session import FetchSession
from broker.replication.frames import pack_frame, unpack_frame
from broker.replication.hosted import HostedPartition
from broker.replication.limits import FixedLimits
from broker.replication.manager import ReplicaManager, ReplicationOptions
from broker.replication.strays import ConfirmUnassigned
from metadata_log.types import BrokerEpoch, BrokerId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import control_pb2, replication_pb2
from tests.support.local_quorum import LocalQuorum
from tests.support.memory_log import MemoryLogStore
from tests.support.metadata import topic_id_of


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


class BrokerReplicas:
    """Start it inside a running loop; its clock stands still unless moved."""

    def __init__(
        self,
        *,
        min_insync_replicas: int = 1,
        confirm_unassigned: ConfirmUnassigned | None = None,
    ) -> None:
        self.now_ms = 0
        self.wall_clock_ms = 0
        self.quorum = LocalQuorum()
        self.client = self.quorum.client("broker 1")
        self.unassigned: set[TopicIdPartition] = set()
        self.asked_about: list[int] = []
        """How many partitions the quorum was asked about, each time."""
        self.limits = FixedLimits(lag_time=100_000, min_insync=min_insync_replicas)
        self.manager = ReplicaManager(
            BrokerId(1),
            ReplicationOptions(),
            quorum=self.client,
            metadata=QuorumImages(self.quorum),
            broker_epoch=lambda: BrokerEpoch(5),
            limits=self.limits,
            confirm_unassigned=confirm_unassigned or self._those_unassigned,
            now_ms=lambda: self.now_ms,
            wall_clock_ms=lambda: self.wall_clock_ms,
            open_channel=open_channel,
        )
        self.store = MemoryLogStore(cast("Any", self.manager.on_flushed))

    async def start(self) -> "BrokerReplicas":
        await self.client.start()
        await self.manager.start(cast("Any", self.store))
        return self

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
        origin: Origin = Origin.CLIENT,
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
        want = FetchWant(TopicPartition(topic, 0), offset, 1 << 20, epoch)
        terms = FetchTerms(
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
        want = DeleteWant(TopicPartition(topic, 0), offset)
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

    async def _those_unassigned(
        self, tips: Sequence[TopicIdPartition]
    ) -> frozenset[TopicIdPartition]:
        self.asked_about.append(len(tips))
        return frozenset(self.unassigned.intersection(tips))


class FollowerStream:
    """One follower's stream as its leader sees it."""

    def __init__(
        self, broker: BrokerReplicas, broker_id: int, proven: BrokerId | None = None
    ) -> None:
        """``proven``: whose certificate the connection has."""
        self.broker_id = broker_id
        self.wakes = 0
        self.session = FetchSession(broker.manager.table, self._woken, proven)

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
        request = replication_pb2.ReplicaFetchRequest(
            replica_id=self.broker_id,
            broker_epoch=broker_epoch,
            max_wait_ms=100,
            max_bytes=max_bytes,
            ack_only=ack_only,
        )
        if topic is not None:
            request.positions.add(
                topic_id=topic_id_of(topic),
                partition=0,
                current_leader_epoch=epoch,
                fetch_offset=fetch,
                flushed_offset=fetch if flushed is None else flushed,
                log_start_offset=start,
                forget=forget,
            )
        self.session.on_request(pack_frame(request.SerializeToString()))

    def has_news(self) -> bool:
        return self.session.has_news

    def receive(self) -> tuple[list[replication_pb2.FetchedPartition], bytes]:
        header, records = unpack_frame(self.session.take_response())
        response = replication_pb2.ReplicaFetchResponse.FromString(header)
        return list(response.partitions), bytes(records)

    def _woken(self) -> None:
        self.wakes += 1
