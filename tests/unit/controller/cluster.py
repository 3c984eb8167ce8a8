"""A quorum, fake brokers around a real controller, and the network between them."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from quorate.broker.changes.table import CREATE_TOPICS
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.controller.channels.control_transport import (
    ControlKind,
    ControlResponse,
    NoControlResponse,
)
from quorate.broker.controller.controller import Controller
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.placement import NewIds, PlacementStart
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.configuration import Configuration
from quorate.common.types import BrokerId, ControllerEpoch, TopicId, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition
from quorate.metadata_log.records import (
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    IsrChange,
    IsrMember,
    LostReplica,
    Operation,
)
from quorate_proto.v1 import admin_pb2, control_pb2
from tests.support.local_quorum import LocalQuorum
from tests.support.virtual_time import pass_time
from tests.support.waiting import async_wait_until
from tests.unit.controller.fake_broker import FakeBroker

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


class Cluster:
    """A quorum, brokers, and the network between controller and brokers."""

    def __init__(self, **settings: object) -> None:
        self.quorum = LocalQuorum()
        self.quorum.latency_s = 0.002
        self.brokers: dict[int, FakeBroker] = {}
        self.sent: list[Sent] = []
        self.silent: set[int] = set()
        self.cut_links: set[frozenset[int]] = set()
        """Links over which controllers' probes are not answered."""
        self.slow: dict[tuple[int, ControlKind], asyncio.Event] = {}
        self.log_may_be_lost = False
        self.lost_replicas: tuple[LostReplica, ...] = ()
        self.wall_clock_ms = 1_593_330_804_078
        self.token_keys: tuple[bytes, ...] = ()
        self.configure(**settings)
        self._incarnations = 0
        self._topics = 0

    def configure(self, **settings: object) -> None:
        """Settings of the brokers that start from now on."""
        self.config: Configuration = BROKER_SPEC.parse(
            {
                "broker.id": 0,
                "log.dir": "unused",
                "quorum.bootstrap.servers": "unused:1",
                "auto.leader.rebalance.enable": False,
                **settings,
            }
        )

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
        await async_wait_until(lambda: self.controller is not None, "a controller")
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
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        broker = next((one for one in self.brokers.values() if one.endpoint == peer.endpoint), None)
        if broker is None:
            raise NoControlResponse("UNAVAILABLE: connection refused")
        request = REQUEST_TYPES[kind].FromString(body)
        self.sent.append(Sent(broker.broker_id, kind, body, request))
        if broker.broker_id in self.silent:
            await pass_time(timeout_ms / 1000)
            raise NoControlResponse("DEADLINE_EXCEEDED")
        gate = self.slow.get((broker.broker_id, kind))
        if gate is not None:
            await gate.wait()
        await asyncio.sleep(0)
        response: ControlResponse = await getattr(broker.service, kind.value)(request, None)
        if kind is ControlKind.LEADER_AND_ISR and request.from_log and not response.error_code:
            # As if the controller had sent what the receiver found in its image.
            request.topics.extend(broker.replicas.led[-1].topics)
        return response

    async def probe(self, peer: Peer, tenure: ControllerTenure, timeout_ms: int) -> ControllerEpoch:
        broker = next((one for one in self.brokers.values() if one.endpoint == peer.endpoint), None)
        if broker is None:
            raise NoControlResponse("UNAVAILABLE: connection refused")
        link = frozenset((broker.broker_id, tenure.controller_id))
        if broker.broker_id in self.silent or link in self.cut_links:
            await pass_time(timeout_ms / 1000)
            raise NoControlResponse("DEADLINE_EXCEEDED")
        await asyncio.sleep(0)
        response = await broker.service.Probe(control_pb2.ProbeRequest(), NO_CONTEXT)
        return ControllerEpoch(response.controller_epoch)

    def requests(self, kind: ControlKind, to: int | None = None) -> list[Sent]:
        return [one for one in self.sent if one.kind is kind and to in (None, one.to)]

    async def at_rest(self) -> None:
        """Everything that follows from what happened so far has happened."""
        await pass_time(1)

    async def when(self, holds: Callable[[], object]) -> None:
        await async_wait_until(holds, "what the test waits for")

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
        response = await self.active.perform(
            CREATE_TOPICS,
            admin_pb2.CreateTopicsRequest(topics=[new_topic(name, *replicas, **configs)]),
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
