"""A whole broker as far as control goes, without logs and sockets.

Session, image, registration, election, fence and metadata cache are real. What the replica manager
would do is recorded.
"""

from collections.abc import Sequence
from typing import Protocol

from broker.config.node import INTER_BROKER_PROTOCOL_VERSION
from broker.control.admin_service import AdminService, ControllerDutyService
from broker.control.fencing import ControlFence
from broker.control.metadata_cache import MetadataCache
from broker.control.registration import BrokerRegistrar
from broker.control.service import BrokerControlService
from broker.controller.administration import Means
from broker.controller.bridge import Bridge
from broker.controller.controller import Controller
from broker.controller.door import AuditEntry
from broker.controller.election import ControllerElector
from broker.controller.managers.topics import NewIds
from broker.controller.transport import ControlTransport
from broker.dynamic_config import LiveConfiguration
from broker.metadata_follower import MetadataFollower
from metadata_log.configuration import Configuration
from metadata_log.records import Listener
from metadata_log.types import (
    BrokerEpoch,
    BrokerId,
    Endpoint,
)
from quorate_proto.v1 import control_pb2
from tests.support.acls import NO_AUTHORIZER
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient


class Surroundings(ControlTransport, Protocol):
    """What a broker finds around it: the quorum, the network, and how it is configured."""

    quorum: LocalQuorum
    config: Configuration
    log_may_be_lost: bool
    wall_clock_ms: int
    token_keys: tuple[bytes, ...]

    def draw(self) -> NewIds: ...


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

    def __init__(self, cluster: Surroundings, broker_id: int, incarnation: int) -> None:
        self.broker_id = BrokerId(broker_id)
        self.quorum: LocalQuorumClient = cluster.quorum.client(f"broker {broker_id}")
        self.follower = MetadataFollower(self.quorum)
        self.replicas = RecordedReplicas()
        self.cache = MetadataCache()
        self.fence = ControlFence()
        self.audited: list[AuditEntry] = []
        self.endpoint = Endpoint(f"broker{broker_id}.{incarnation}", 9192)
        self.registrar = BrokerRegistrar(
            self.quorum,
            broker_id=self.broker_id,
            incarnation_id=f"process {broker_id:3}{incarnation:5}".encode(),
            listeners=[Listener(name="PLAINTEXT", endpoint=Endpoint(f"kafka{broker_id}", 9092))],
            grpc=self.endpoint,
            images=self.follower,
            log_may_be_lost=cluster.log_may_be_lost,
            inter_broker_protocol_max=cluster.config[INTER_BROKER_PROTOCOL_VERSION],
        )
        self.service = BrokerControlService(
            own_epoch=lambda: self.registrar.broker_epoch,
            replicas=self.replicas,
            cache=self.cache,
            images=self.follower,
            fence=self.fence,
        )
        self.bridge = Bridge(
            self.broker_id,
            broker_epoch=lambda: self.registrar.broker_epoch,
            quorum=self.quorum,
            images=self.follower,
            means=Means(
                config=LiveConfiguration(
                    lambda: self.follower.image, cluster.config, self.broker_id
                ),
                clock_ms=lambda: cluster.wall_clock_ms,
                token_keys=lambda: cluster.token_keys,
                draw_id=lambda: cluster.draw().topic_id.hex(),
            ),
            trail=self._audit,
        )
        self.elector = ControllerElector(
            broker_id=self.broker_id,
            config=LiveConfiguration(lambda: self.follower.image, cluster.config, self.broker_id),
            quorum=self.quorum,
            images=self.follower,
            transport=cluster,
            draw=cluster.draw,
            clock_ms=lambda: cluster.wall_clock_ms,
            token_keys=lambda: cluster.token_keys,
            trail=self._audit,
            bridge=self.bridge,
        )
        self.admin = AdminService(
            cluster_id=lambda: self.quorum.cluster_id,
            own_epoch=lambda: self.registrar.broker_epoch,
            images=self.follower,
            quorum=self.quorum,
            controller=lambda: self.elector.active,
            authorizer=NO_AUTHORIZER,
        )
        self.duty = ControllerDutyService(lambda: self.elector.active)

    async def _audit(self, entries: Sequence[AuditEntry]) -> None:
        self.audited.extend(entries)

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
        self.bridge.start()
        await self.elector.start()

    async def halt(self) -> None:
        """As kill -9: nothing more comes from here; the session is still open."""
        await self.elector.close()
        await self.bridge.close()
        await self.registrar.close()
        await self.follower.close()
