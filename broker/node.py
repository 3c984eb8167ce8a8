"""One broker, put together: what is started after what, and stopped before what.

Start: the quorum first (who am I, which cluster), then the log, then the image, then the doors
(Kafka, gRPC), and only then the registration: from that moment the controller sends commands.
Stop: the leaderships move away, then the doors close, then the log, and the session last.
"""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from broker.config.node import (
    BROKER_ID,
    BROKER_RACK,
    CONTROLLED_SHUTDOWN_TIMEOUT_MS,
    INTER_BROKER_PROTOCOL_VERSION,
    QUORUM_CONNECT_TIMEOUT_MS,
)
from broker.config.producers import (
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
)
from broker.config.replication import (
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
)
from broker.config.retention import LOG_RETENTION_CHECK_INTERVAL_MS
from broker.control.controlled_shutdown import request_controlled_shutdown
from broker.control.controller_duty import ControllerDuty
from broker.control.forwarding import ControllerForwarder
from broker.control.metadata_cache import MetadataCache
from broker.control.ports import ActiveController
from broker.control.registration import BrokerRegistrar
from broker.control.replica_reports import ReplicaReporter, Trouble
from broker.controller.administration import Means
from broker.controller.bridge import Bridge
from broker.controller.election import ControllerElector, draw_ids
from broker.controller.transport import GrpcControlTransport
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.partition_verifier import PartitionVerifier
from broker.coordinator.sure_leadership import SureLeadership
from broker.coordinator.transaction_peers import PeerMarkers, WatchedLeaders
from broker.coordinators import Coordinators
from broker.doors import Doors, OnStop
from broker.dynamic_config import LiveConfiguration, topics_of
from broker.live_limits import LiveLimits
from broker.log_watch import LogWatch
from broker.metadata_follower import MetadataFollower
from broker.metrics.cluster import cluster_samples
from broker.metrics.compaction import compaction_samples
from broker.metrics.groups import group_samples
from broker.metrics.replicas import replica_samples, store_samples
from broker.metrics.transactions import transaction_samples
from broker.replication.manager import ReplicaManager, ReplicationOptions
from broker.replication.strays import may_be_deleted
from broker.replication.verification import Verification
from broker.security.authorizer import Authorizer, AuthorizerSettings
from broker.security.token_config import (
    DELEGATION_TOKEN_SECRET_KEY,
    DELEGATION_TOKEN_SECRET_KEY_FILE,
)
from broker.security.token_keys import TokenKeys
from broker.surroundings import Surroundings
from broker.throttle_config import throttles
from metadata_log.configuration import Configuration
from metadata_log.draft import Changes
from metadata_log.image import Image
from metadata_log.types import ID_BYTES, BrokerEpoch, BrokerId, TopicIdPartition
from quorate_proto.v1 import admin_pb2
from quorum.metrics.family import Metrics, Sample

UNREGISTERED: Final = BrokerEpoch(-1)
"""Sent in replica fetches while this broker has no epoch: no leader admits it to an ISR then."""


class BrokerNode:
    """Everything one broker process runs. ``start`` once, ``stop`` once."""

    def __init__(self, config: Configuration, surroundings: Surroundings) -> None:
        self._config = config
        self._surroundings = surroundings
        self._broker_id = BrokerId(config[BROKER_ID])
        self._incarnation_id = surroundings.random_bytes(ID_BYTES)
        self._cleanup = AsyncExitStack()
        self._registrar: BrokerRegistrar | None = None
        self._elector: ControllerElector | None = None
        self._reporter: ReplicaReporter | None = None
        self._quorum = surroundings.quorum
        self._follower = MetadataFollower(self._quorum)
        self._channels = surroundings.peer_channels()
        self._cache = MetadataCache()
        self._metrics = Metrics()
        self._metrics.add(self._cluster_metrics)
        self._metrics.add(lambda: replica_samples(self._replicas.table))
        self._metrics.add(lambda: store_samples(self._replicas.table.store))
        self._metrics.add(
            lambda: compaction_samples(self._replicas.compacting.figures, surroundings.now_ms())
        )
        self._live = LiveConfiguration(lambda: self._follower.image, config, self._broker_id)
        self._limits = LiveLimits(self._live)
        self._token_keys = TokenKeys(
            config[DELEGATION_TOKEN_SECRET_KEY], config[DELEGATION_TOKEN_SECRET_KEY_FILE]
        )
        self._authorizer = Authorizer(
            lambda: self._follower.image.acls, AuthorizerSettings.of(config)
        )
        self._replicas = self._replica_manager()
        self._log_watch = LogWatch(
            self._broker_id,
            self._incarnation_id,
            self._replicas,
            self._follower,
            self._look_for_trouble,
        )
        self._forwarder: ControllerForwarder | None = None
        self._coordinators = coordinators = self._new_coordinators()
        self._metrics.add(
            lambda: group_samples(coordinators.groups, self._replicas.table.high_watermark)
        )
        self._metrics.add(
            lambda: transaction_samples(
                coordinators.transactions, coordinators.markers, surroundings.wall_clock_ms()
            )
        )

    async def start(self) -> None:
        """Come up and register; what was started is stopped again if a later step fails.

        Raises:
            QuorumUnavailable, DataFolderError, ListenError, RegistrationRefused: named causes.
        """
        try:
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise

    async def stop(self) -> None:
        """Hand the leaderships over, finish what is in flight, close everything."""
        if self._broker_epoch() is not None:
            self._replicas.prepare_to_stop()
            await request_controlled_shutdown(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                images=self._follower,
                channels=self._channels,
                local=self._active_controller,
                timeout_ms=self._config[CONTROLLED_SHUTDOWN_TIMEOUT_MS],
            )
        await self._cleanup.aclose()

    async def log_failed(self) -> None:
        """Return once the disk of the log has failed; a full one is waited out.

        The broker is to be stopped then: others of the ISR lead what it leads.
        """
        await self._log_watch.has_failed.wait()

    # -- starting --------------------------------------------------------------------------------

    async def _start(self) -> None:
        on_stop = self._cleanup.push_async_callback
        await self._quorum.start(deadline_ms=self._config[QUORUM_CONNECT_TIMEOUT_MS])
        on_stop(self._quorum.close)
        replicas = self._replicas
        store = await self._surroundings.open_store(
            self._cleanup, replicas.on_flushed, self._log_watch.on_failed
        )
        self._log_watch.watch(store)
        await self._replicas.start(store)
        on_stop(self._replicas.close)
        on_stop(self._log_watch.close)
        on_stop(self._channels.close)
        await self._follower.start()
        on_stop(self._follower.close)
        self._coordinators.start()
        on_stop(self._coordinators.close)
        self._follower.subscribe(self._on_configs)
        image = await self._follower.wait_for(await self._quorum.read_offset())
        await self._log_watch.adopt(image, store)
        await self._open_doors(on_stop, log_may_be_lost=store.log_may_be_lost)

    async def _open_doors(self, on_stop: OnStop, *, log_may_be_lost: bool) -> None:
        """Listen, register under the addresses listened on, and stand for controller."""
        trail = self._surroundings.audit_trail(self._cleanup)
        bridge = Bridge(
            self._broker_id,
            broker_epoch=self._broker_epoch,
            quorum=self._quorum,
            images=self._follower,
            means=Means(
                config=self._live,
                clock_ms=self._surroundings.wall_clock_ms,
                token_keys=self._token_keys,
                draw_id=lambda: self._surroundings.random_bytes(ID_BYTES).hex(),
            ),
            trail=trail,
        )
        bridge.start()
        on_stop(bridge.close)
        forwarder = ControllerForwarder(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            images=self._follower,
            channels=self._channels,
            local=self._active_controller,
            bridge=bridge,
            clock_ms=self._surroundings.now_ms,
        )
        self._forwarder = forwarder
        doors = Doors(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            config=self._config,
            live=self._live,
            limits=self._limits,
            surroundings=self._surroundings,
            follower=self._follower,
            replicas=self._replicas,
            cache=self._cache,
            metrics=self._metrics,
            token_keys=self._token_keys,
            authorizer=self._authorizer,
            coordinators=self._coordinators,
            controller=self._active_controller,
            forwarder=forwarder,
        )
        addresses = await doors.open(on_stop)
        self._registrar = BrokerRegistrar(
            self._quorum,
            broker_id=self._broker_id,
            incarnation_id=self._incarnation_id,
            listeners=addresses.listeners,
            grpc=addresses.grpc,
            inter_broker=addresses.inter_broker,
            rack=self._config[BROKER_RACK],
            images=self._follower,
            log_may_be_lost=log_may_be_lost,
            inter_broker_protocol_max=self._config[INTER_BROKER_PROTOCOL_VERSION],
        )
        self._elector = ControllerElector(
            broker_id=self._broker_id,
            config=self._live,
            quorum=self._quorum,
            images=self._follower,
            transport=GrpcControlTransport(self._channels),
            draw=partial(draw_ids, self._surroundings.random_bytes),
            clock_ms=self._surroundings.wall_clock_ms,
            token_keys=self._token_keys,
            trail=trail,
            bridge=bridge,
        )
        await self._registrar.start()
        on_stop(self._registrar.close)
        await self._elector.start()
        on_stop(self._elector.close)
        self._reporter = self._replica_reporter()
        self._reporter.start()
        on_stop(self._reporter.close)

    # -- what the parts ask of one another -------------------------------------------------------

    def _replica_manager(self) -> ReplicaManager:
        config = self._config
        return ReplicaManager(
            self._broker_id,
            ReplicationOptions(
                fetch_wait_max_ms=config[REPLICA_FETCH_WAIT_MAX_MS],
                fetch_response_max_bytes=config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
                producer_check_interval_ms=config[PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS],
                retention_check_interval_ms=config[LOG_RETENTION_CHECK_INTERVAL_MS],
            ),
            quorum=self._quorum,
            metadata=self._follower,
            broker_epoch=lambda: self._broker_epoch() or UNREGISTERED,
            limits=self._limits,
            confirm_unassigned=self._confirm_unassigned,
            now_ms=self._surroundings.now_ms,
            wall_clock_ms=self._surroundings.wall_clock_ms,
            open_channel=self._surroundings.open_channel,
            throttles=throttles(self._live),
        )

    def _replica_reporter(self) -> ReplicaReporter:
        replicas = self._replicas
        return ReplicaReporter(
            self._broker_id,
            broker_epoch=self._broker_epoch,
            images=self._follower,
            duty=ControllerDuty(
                self._broker_id,
                images=self._follower,
                channels=self._channels,
                local=self._active_controller,
            ),
            trouble=lambda: Trouble(replicas.table.store.is_full, replicas.damaged()),
        )

    def _new_coordinators(self) -> Coordinators:
        markers = PeerMarkers(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            images=self._follower,
            channels=self._channels,
            local=self._replicas,
        )
        coordinators = Coordinators(
            self._config,
            self._surroundings,
            metadata=self._cache,
            replicas=self._replicas,
            markers=MarkerSender(WatchedLeaders(self._follower, self._quorum), markers),
            id_blocks=self,
            may_speak=self._sure_leadership().may_speak,
        )
        verifier = PartitionVerifier(
            broker_id=self._broker_id,
            images=self._follower,
            channels=self._channels,
            local=lambda batch: coordinators.transactions.verify_partition(*batch),
        )
        self._replicas.verify_transactions(
            Verification(
                verifier.verify, lambda: self._live[TRANSACTION_PARTITION_VERIFICATION_ENABLE]
            )
        )
        return coordinators

    async def allocate_producer_ids(self) -> admin_pb2.AllocateProducerIdsResponse:
        """For the coordinators; clients ask for ids once the doors are open."""
        assert self._forwarder is not None
        return await self._forwarder.allocate_producer_ids()

    def _sure_leadership(self) -> SureLeadership:
        quorum = self._surroundings.quorum
        return SureLeadership(
            self._broker_id,
            self._surroundings.now_ms,
            lambda: quorum.last_keep_alive_ms + quorum.session_timeout_ms,
            self._broker_epoch,
            lambda: self._follower.image,
        )

    def _cluster_metrics(self) -> Iterator[Sample]:
        controller = self._active_controller()
        yield from cluster_samples(
            self._follower.image,
            is_controller=controller is not None,
            quorum=self._quorum,
            now_ms=self._surroundings.now_ms,
        )
        if controller is not None:
            yield from controller.metrics()

    def _broker_epoch(self) -> BrokerEpoch | None:
        return None if self._registrar is None else self._registrar.broker_epoch

    def _active_controller(self) -> ActiveController | None:
        return None if self._elector is None else self._elector.active

    def _look_for_trouble(self) -> None:
        if self._reporter is not None:
            self._reporter.look()

    def _on_configs(self, image: Image, changes: Changes) -> None:
        if changes.configs:
            self._replicas.configs_changed(topics_of(changes.configs))

    async def _confirm_unassigned(
        self, tips: Sequence[TopicIdPartition]
    ) -> frozenset[TopicIdPartition]:
        """Those that the quorum, asked now, has taken from this broker (rule 7)."""
        image = await self._follower.wait_for(await self._quorum.read_offset())
        return frozenset(
            tip
            for tip in tips
            if (hosted := self._replicas.table.get(tip)) is not None
            and may_be_deleted(image, self._broker_id, tip, assigned_at=hosted.log.assigned_at)
        )
