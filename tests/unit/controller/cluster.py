"""Brokers without logs or sockets around a real controller: what they are told, what they answer.

Each ``FakeBroker`` is a whole broker as far as control goes: its own session, image, registration,
election, fence and metadata cache, all real. What the replica manager would do is recorded.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from broker.config import BROKER_SPEC
from broker.control.admin_service import AdminService, ControllerDutyService
from broker.control.fencing import ControlFence
from broker.control.metadata_cache import MetadataCache
from broker.control.registration import BrokerRegistrar
from broker.control.service import BrokerControlService
from broker.controller.controller import Controller
from broker.controller.election import ControllerElector
from broker.controller.managers.placement import PlacementStart
from broker.controller.managers.topics import NewIds
from broker.controller.transport import ControlKind, ControlResponse, Unanswered
from broker.metadata_follower import MetadataFollower
from broker.peers import PeerChannels
from metadata_log.configuration import Configuration
from metadata_log.image import Image, Partition
from metadata_log.records import (
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    IsrChange,
    IsrMember,
    Operation,
)
from metadata_log.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    TopicId,
    TopicPartition,
)
from quorate_proto.v1 import admin_pb2, control_pb2
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient
from tests.support.virtual_time import until

NO_CONTEXT: Any = None
"""The services under test look at no call's context."""

ControlRequest = (
    control_pb2.LeaderAndIsrRequest
    | control_pb2.StopReplicaRequest
    | control_pb2.UpdateMetadataRequest
)

REQUEST_TYPES: dict[ControlKind, Any] = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrRequest,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaRequest,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataRequest,
}


class Sent(NamedTuple):
    """One control request on its way."""

    to: BrokerId
    kind: ControlKind
    body: bytes
    request: ControlRequest


class RecordedReplicas:
    """A replica manager that does as told and says so."""

    def __init__(self) -> None:
        self.led: list[control_pb2.LeaderAndIsrRequest] = []
        self.stopped: list[control_pb2.StopReplicaRequest] = []

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        self.led.append(request)
        return [
            control_pb2.PartitionOutcome(topic=topic.topic, partition=one.partition)
            for topic in request.topics
            for one in topic.partitions
        ]

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        self.stopped.append(request)
        return [
            control_pb2.PartitionOutcome(topic=one.topic, partition=one.partition)
            for one in request.partitions
        ]


class FakeBroker:
    """One incarnation of one broker."""

    def __init__(self, cluster: "Cluster", broker_id: int, incarnation: int) -> None:
        self.broker_id = BrokerId(broker_id)
        self.quorum: LocalQuorumClient = cluster.quorum.client(f"broker {broker_id}")
        self.follower = MetadataFollower(self.quorum)
        self.replicas = RecordedReplicas()
        self.cache = MetadataCache()
        self.fence = ControlFence()
        self.endpoint = Endpoint(f"broker{broker_id}.{incarnation}", 9192)
        self.registrar = BrokerRegistrar(
            self.quorum,
            broker_id=self.broker_id,
            incarnation_id=f"process {broker_id:3}{incarnation:5}".encode(),
            kafka=Endpoint(f"kafka{broker_id}", 9092),
            grpc=self.endpoint,
            images=self.follower,
            log_may_be_lost=cluster.log_may_be_lost,
        )
        self.service = BrokerControlService(
            own_epoch=lambda: self.registrar.broker_epoch,
            replicas=self.replicas,
            cache=self.cache,
            images=self.follower,
            fence=self.fence,
        )
        self.elector = ControllerElector(
            broker_id=self.broker_id,
            config=cluster.config,
            quorum=self.quorum,
            images=self.follower,
            channels=PeerChannels(),
            transport=cluster,
            draw=cluster.draw,
            clock_ms=lambda: 1_593_330_804_078,
        )
        self.admin = AdminService(
            cluster_id=lambda: self.quorum.cluster_id,
            own_epoch=lambda: self.registrar.broker_epoch,
            images=self.follower,
            quorum=self.quorum,
            controller=lambda: self.elector.active,
        )
        self.duty = ControllerDutyService(lambda: self.elector.active)

    @property
    def controller(self) -> Controller | None:
        return self.elector.active

    @property
    def epoch(self) -> BrokerEpoch:
        """Its registration, as it knows it."""
        assert self.registrar.broker_epoch is not None
        return self.registrar.broker_epoch

    async def start(self) -> None:
        await self.quorum.start()
        await self.follower.start()
        await self.registrar.start()
        await self.elector.start()

    async def halt(self) -> None:
        """As kill -9: nothing more comes from here; the session is still open."""
        await self.elector.close()
        await self.registrar.close()
        await self.follower.close()


class Cluster:
    """A quorum, brokers, and the network between controller and brokers."""

    def __init__(self, **settings: object) -> None:
        self.quorum = LocalQuorum()
        self.quorum.latency_s = 0.002
        self.brokers: dict[int, FakeBroker] = {}
        self.sent: list[Sent] = []
        self.silent: set[int] = set()
        self.slow: dict[tuple[int, ControlKind], asyncio.Event] = {}
        self.log_may_be_lost = False
        self.config: Configuration = BROKER_SPEC.parse(
            {
                "broker.id": 0,
                "log.dir": "unused",
                "quorum.bootstrap.servers": "unused:1",
                **settings,
            }
        )
        self._incarnations = 0
        self._topics = 0

    @property
    def image(self) -> Image:
        return self.quorum.image

    def draw(self) -> NewIds:
        self._topics += 1
        return NewIds(TopicId(f"topic {self._topics:10}".encode()), PlacementStart(0, 0))

    # -- brokers come and go ---------------------------------------------------------------------

    async def start_broker(self, broker_id: int) -> FakeBroker:
        self._incarnations += 1
        broker = FakeBroker(self, broker_id, self._incarnations)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def start_brokers(self, *broker_ids: int) -> None:
        """The first of them becomes the controller."""
        for broker_id in broker_ids:
            await self.start_broker(broker_id)
        await until(lambda: self.controller is not None)
        await self.at_rest()

    async def kill(self, broker_id: int) -> None:
        """kill -9, and its session expires."""
        broker = self.brokers.pop(broker_id)
        await broker.halt()
        self.quorum.expire(broker.quorum.session_id, tell=False)

    async def bounce(self, broker_id: int) -> None:
        """Gone and back before anybody has looked."""
        broker = self.brokers.pop(broker_id)
        await broker.halt()
        self.quorum.expire(broker.quorum.session_id, tell=False)
        await self.start_broker(broker_id)

    def bounce_in_the_log(self, broker_id: int) -> None:
        """Gone and back within no time at all; no process stands behind the new incarnation."""
        before = self.image.brokers[BrokerId(broker_id)].registration
        self.quorum.expire(before.session_id, tell=False)
        self._incarnations += 1
        registration = msgspec.structs.replace(
            before,
            session_id=self.quorum.open_session(f"broker {broker_id}", timeout_ms=6_000),
            incarnation_id=f"process {broker_id:3}{self._incarnations:5}".encode(),
        )
        assert self.quorum.write(Operation(records=(registration,))).ok

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.halt()

    # -- who is controller -----------------------------------------------------------------------

    @property
    def controllers(self) -> list[FakeBroker]:
        return [one for one in self.brokers.values() if one.controller is not None]

    @property
    def controller(self) -> FakeBroker | None:
        found = self.controllers
        return found[0] if found else None

    @property
    def active(self) -> Controller:
        """The controller in office; there must be exactly one."""
        (broker,) = self.controllers
        assert broker.controller is not None
        return broker.controller

    def hand_over(self, from_broker: int, to_broker: int) -> None:
        """An operator writes another broker into /controller (E5)."""
        removed = ControllerRemoved(broker_id=BrokerId(from_broker))
        claim = ControllerClaim(
            broker_id=BrokerId(to_broker),
            session_id=self.brokers[to_broker].quorum.session_id,
            timestamp_ms=1,
            controller_epoch=ControllerEpoch(self.image.controller_epoch + 1),
        )
        assert self.quorum.write(Operation(records=(removed, claim))).ok

    # -- the network -----------------------------------------------------------------------------

    async def send(
        self, endpoint: Endpoint, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        broker = next((one for one in self.brokers.values() if one.endpoint == endpoint), None)
        if broker is None:
            raise Unanswered("UNAVAILABLE: connection refused")
        request = REQUEST_TYPES[kind].FromString(body)
        self.sent.append(Sent(broker.broker_id, kind, body, request))
        if broker.broker_id in self.silent:
            await asyncio.sleep(timeout_ms / 1000)
            raise Unanswered("DEADLINE_EXCEEDED")
        gate = self.slow.get((broker.broker_id, kind))
        if gate is not None:
            await gate.wait()
        await asyncio.sleep(0)
        response: ControlResponse = await getattr(broker.service, kind.value)(request, None)
        return response

    def requests(self, kind: ControlKind, to: int | None = None) -> list[Sent]:
        return [one for one in self.sent if one.kind is kind and to in (None, one.to)]

    async def at_rest(self) -> None:
        """Everything that follows from what happened so far has happened."""
        await asyncio.sleep(1)

    async def when(self, holds: Callable[[], object]) -> None:
        await until(holds)

    # -- topics ----------------------------------------------------------------------------------

    def partition(self, topic: str, number: int = 0) -> Partition:
        found = self.image.partition(TopicPartition(topic, number))
        assert found is not None
        return found

    def change_isr(self, topic: str, number: int, isr: tuple[int, ...]) -> None:
        """The leader changes the ISR, as it alone may."""
        before = self.partition(topic, number)
        change = IsrChange(
            topic=topic,
            topic_id=self.image.topics[topic].topic_id,
            partition=number,
            expected_version=before.version,
            leader=before.leader,
            leader_broker_epoch=self.image.brokers[before.leader].epoch,
            leader_epoch=before.leader_epoch,
            isr=tuple(
                IsrMember(
                    broker_id=BrokerId(member),
                    broker_epoch=self.image.brokers[BrokerId(member)].epoch,
                )
                for member in isr
            ),
        )
        assert self.quorum.write(Operation(records=(change,))).ok

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        config = ConfigSet(entity_type="topic", entity_name=topic, key=key, value=value)
        epoch = ControllerEpochIs(controller_epoch=self.image.controller_epoch)
        assert self.quorum.write(Operation(records=(config,), conditions=(epoch,))).ok

    async def create_topic(
        self, name: str, *replicas: tuple[int, ...], **configs: str
    ) -> admin_pb2.TopicResult:
        """A topic with one partition per tuple of replicas."""
        response = await self.active.create_topics(
            admin_pb2.CreateTopicsRequest(topics=[new_topic(name, *replicas, **configs)])
        )
        assert response.error_code == 0
        (result,) = response.topics
        return result


def new_topic(name: str, *replicas: tuple[int, ...], **configs: str) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            admin_pb2.ReplicaAssignment(partition=number, broker_ids=ids)
            for number, ids in enumerate(replicas)
        ],
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
