"""A whole broker as far as control goes, without logs and sockets.

Session, image, registration, election, fence and metadata cache are real. What the replica manager
would do is recorded.
"""

from collections.abc import Sequence
from typing import Protocol

from quorate.broker.admin.admin_service import AdminService, BrokerToControllerService
from quorate.broker.changes.audit_log import AuditEntry
from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.node import INTER_BROKER_PROTOCOL_VERSION
from quorate.broker.control.active_controller import ActiveControllerSlot
from quorate.broker.control.broker_control_service import BrokerControlService, ControlFence
from quorate.broker.control.broker_registrar import BrokerRegistrar
from quorate.broker.controller.bridge import Bridge
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder, hosted_by
from quorate.broker.controller.channels.control_transport import BrokerTransport
from quorate.broker.controller.controller import Controller, ControllerDependencies
from quorate.broker.controller.election import ControllerElector
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.placement import NewIds
from quorate.broker.controller.requests.administration_requests import AdministrationContext
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.configuration import Configuration
from quorate.common.types import BrokerEpoch, BrokerId, Endpoint
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Listener, LostReplica
from quorate_proto.v1 import control_pb2
from tests.support.acls import NO_AUTHORIZER
from tests.support.leadership_outcomes import leadership_outcomes
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient


class Surroundings(BrokerTransport, Protocol):
    """What a broker finds around it: the quorum, the network, and how it is configured."""

    quorum: LocalQuorum
    config: Configuration
    log_may_be_lost: bool
    lost_replicas: tuple[LostReplica, ...]
    wall_clock_ms: int
    token_keys: tuple[bytes, ...]

    def draw(self) -> NewIds: ...


class RecordedReplicas:
    """A replica manager that does as told and says so."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self.led: list[control_pb2.LeaderAndIsrRequest] = []
        self.stopped: list[control_pb2.StopReplicaRequest] = []
        self.broken: set[str] = set()
        """Topics whose partitions it cannot lead."""

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        self.led.append(request)
        return leadership_outcomes(request, self.broken)

    async def apply_init(self, image: Image) -> list[control_pb2.PartitionOutcome]:
        """Recorded as the request that a controller sends at inter_broker_protocol 2."""
        assert image.controller is not None
        tenure = ControllerTenure(image.controller.broker_id, image.controller_epoch)
        told = ControlRequestBuilder(tenure, ack_timeout_ms=0).leader_and_isr(
            image, hosted_by(image, self._broker_id), is_init=True
        )
        request = control_pb2.LeaderAndIsrRequest.FromString(told.body)
        outcomes = await self.apply_leader_and_isr(request)
        return [one for one in outcomes if one.error_code]

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
        self.replicas = RecordedReplicas(self.broker_id)
        self.cache = MetadataCache()
        self.fence = ControlFence()
        self.audited: list[AuditEntry] = []
        self.endpoint = Endpoint(f"broker{broker_id}.{incarnation}", 9192)
        self.identity = BrokerIdentity(
            self.broker_id, f"process {broker_id:3}{incarnation:5}".encode()
        )
        self.active_controller = ActiveControllerSlot()
        self.registrar = BrokerRegistrar(
            self.quorum,
            identity=self.identity,
            listeners=[Listener(name="PLAINTEXT", endpoint=Endpoint(f"kafka{broker_id}", 9092))],
            grpc=self.endpoint,
            images=self.follower,
            log_may_be_lost=cluster.log_may_be_lost,
            lost_replicas=cluster.lost_replicas,
            inter_broker_protocol_max=cluster.config[INTER_BROKER_PROTOCOL_VERSION],
        )
        self.service = BrokerControlService(
            identity=self.identity,
            replicas=self.replicas,
            cache=self.cache,
            images=self.follower,
            fence=self.fence,
        )
        self.bridge = Bridge(
            self.identity,
            quorum=self.quorum,
            images=self.follower,
            context=AdministrationContext(
                config=LiveConfiguration(self.follower, cluster.config, self.broker_id),
                clock_ms=lambda: cluster.wall_clock_ms,
                token_keys=lambda: cluster.token_keys,
                draw_id=lambda: cluster.draw().topic_id.hex(),
            ),
            audit_log=self._audit,
        )
        self.elector = ControllerElector(
            self.broker_id,
            ControllerDependencies(
                config=LiveConfiguration(self.follower, cluster.config, self.broker_id),
                quorum=self.quorum,
                images=self.follower,
                transport=cluster,
                draw=cluster.draw,
                clock_ms=lambda: cluster.wall_clock_ms,
                token_keys=lambda: cluster.token_keys,
                audit_log=self._audit,
                bridge=self.bridge,
            ),
            slot=self.active_controller,
        )
        self.admin = AdminService(
            identity=self.identity,
            images=self.follower,
            quorum=self.quorum,
            controller=self.active_controller,
            authorizer=NO_AUTHORIZER,
        )
        self.duty = BrokerToControllerService(self.active_controller)

    async def _audit(self, entries: Sequence[AuditEntry]) -> None:
        self.audited.extend(entries)

    @property
    def controller(self) -> Controller | None:
        return self.elector.active

    @property
    def epoch(self) -> BrokerEpoch:
        """Its registration, as it knows it."""
        assert self.identity.epoch is not None
        return self.identity.epoch

    async def start(self) -> None:
        await self.quorum.start()
        await self.follower.start()
        await self.follower.wait_for(await self.quorum.read_offset())
        await self.registrar.start()
        self.bridge.start()
        await self.elector.start()

    async def halt(self) -> None:
        """As kill -9: nothing more comes from here; the session is still open."""
        await self.elector.close()
        await self.bridge.close()
        await self.registrar.close()
        await self.follower.close()
