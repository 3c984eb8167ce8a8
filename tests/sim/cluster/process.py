"""One incarnation of a broker: the deployed ``BrokerServer`` in a simulated environment."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc.aio

from quorate.broker.assembly.kafka_listeners import ListenError
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.broker_server import BrokerServer
from quorate.broker.changes.audit_log import KeepAuditEntries, keep_no_entries
from quorate.broker.common.errors import KafkaError
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.control.broker_registrar import RegistrationRefused
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.log_manager import LogCallbacks, LogManager
from quorate.broker.log.writing.log_writer import LogManagerEvents, LogManagerListener
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.serving.transaction_verification import TransactionVerifier
from quorate.broker.rpc.grpc_listener import GrpcListener
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.broker.security.client_guard import VerifiedPasswords
from quorate.common.configuration import Configuration
from quorate.common.types import TopicIdPartition
from quorate.quorum.quorum_errors import QuorumError
from tests.sim.cluster.front_door import FrontDoor
from tests.sim.cluster.machine import Machine, MachineLoop, raise_failure
from tests.sim.cluster.quorum_client import SimulatedQuorumClient
from tests.sim.cluster.rpc import Rpc
from tests.sim.cluster.rpc_frames import BROKERS, CLIENTS, endpoint_of

if TYPE_CHECKING:
    from tests.sim.cluster.quorum import SimulatedQuorum

NAMED_FAILURES = (QuorumError, ListenError, RegistrationRefused, KafkaError, OSError)


class SimulatedEnvironment:
    """The environment of a simulated ``BrokerServer``."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._machine = process.machine
        self.quorum = cast(Any, process.quorum)

    def now_ms(self) -> int:
        return int(self._machine.clock_s() * 1000)

    def wall_clock_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms()

    def random_bytes(self, count: int) -> bytes:
        return self._machine.world.random.randbytes(count)

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        return cast(grpc.aio.Channel, self._process.rpc.open_channel(peer.endpoint))

    async def connect(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> None:
        raise AssertionError("simulated brokers offer no framed streams")

    def replication_listener(self, table: PartitionTable) -> None:
        """There is none: simulated followers fetch over simulated gRPC."""

    def peer_channels(self) -> PeerChannels:
        return PeerChannels(lambda peer, _security: self.open_channel(peer))

    def inter_broker_listener(self, images: MetadataFollower) -> GrpcListener:
        return GrpcListener(self._process.rpc.new_server(BROKERS))

    def client_listener(self, passwords: VerifiedPasswords) -> GrpcListener:
        return GrpcListener(self._process.rpc.new_server(CLIENTS))

    def kafka_listener(self, services: KafkaServices) -> FrontDoor:
        return FrontDoor(self._process.rpc, services)

    def open_audit_log(self, cleanup: AsyncExitStack) -> KeepAuditEntries:
        return keep_no_entries

    async def open_store(
        self, cleanup: AsyncExitStack, events: LogManagerEvents, incarnation_id: bytes
    ) -> LogDirectories:
        process = self._process
        events.subscribe = partial(process.listens_to_log, events.subscribe)  # type: ignore[method-assign]
        store = self._machine.disk.open(self._machine, LogCallbacks.to(events), incarnation_id)
        process.store = store
        cleanup.push_async_callback(store.close)
        return LogDirectories.alone(store)


class Process:
    """Runs from ``start`` until it is killed, stops or fails."""

    def __init__(
        self,
        machine: Machine,
        quorum: "SimulatedQuorum",
        config: Configuration,
        *,
        session_timeout_ms: int,
        patience: float,
    ) -> None:
        self.machine = machine
        self.loop = MachineLoop(machine)
        self.rpc = Rpc(machine, self.loop)
        self.quorum = SimulatedQuorumClient(
            quorum, machine, timeout_ms=session_timeout_ms, patience=patience
        )
        self.quorum.process = self
        self.store: LogManager | None = None
        self.replicas: ReplicaManager | None = None
        """The replicas of the broker, or None before its log is open."""
        self.when_hosting: list[Callable[[ReplicaManager], None]] = []
        """The functions that are called with the replicas once they are there, before any leads or
        follows."""
        self.broker: BrokerServer | None = None
        self.is_up = False
        with self.loop.running():
            self.shared = SharedParts.of(config, SimulatedEnvironment(self))

    @property
    def listens(self) -> bool:
        servers = self.rpc.servers.values()
        return bool(servers) and all(server.is_started for server in servers)

    @property
    def hosted(self) -> Iterable[HostedPartition]:
        """The partitions that it hosts."""
        return () if self.replicas is None else self.replicas.table

    @property
    def needs_others(self) -> bool:
        """Whether it leads a partition that takes acks=all now, and would not by itself."""
        return any(
            one.leads
            and one.replica.has_enough_replicas
            and one.replica.effective_min_insync_replicas > 1
            for one in self.hosted
        )

    def hosted_at(self, tip: TopicIdPartition) -> HostedPartition | None:
        """The partition of that id, if it is hosted."""
        return None if self.replicas is None else self.replicas.table.get(tip)

    def listens_to_log(
        self, subscribe: Callable[[LogManagerListener], None], listener: LogManagerListener
    ) -> None:
        """Note the replicas when they begin to listen to the log store."""
        subscribe(listener)
        if isinstance(listener, ReplicaManager):
            self.replicas = listener
            for action in self.when_hosting:
                action(listener)

    def verify(self, verifier: TransactionVerifier) -> None:
        """Have this asked before transactions begin, now and once the log is open."""

        def ask(replicas: ReplicaManager) -> None:
            verification = replicas._appender._verification
            assert verification is not None
            verification._verifier = verifier

        self.when_hosting.append(ask)
        if self.replicas is not None:
            ask(self.replicas)

    def start(self) -> None:
        """Begin, inside the loop."""
        self._main = self.loop.create_task(self._run())
        self._main.add_done_callback(raise_failure)

    def stop(self) -> None:
        """Stop as on SIGTERM; the process ends when it is through."""
        if self.is_up:
            self.is_up = False
            self._stopping = self.loop.create_task(self._stop())
            self._stopping.add_done_callback(raise_failure)

    async def _run(self) -> None:
        try:
            self.broker = await BrokerServer.start(self.shared)
        except NAMED_FAILURES as error:
            self._exit(f"{type(error).__name__}: {error}")
        else:
            self.is_up = True
            await self.broker.failed()
            self.stop()

    async def _stop(self) -> None:
        assert self.broker is not None
        await self.broker.stop()
        self._exit("stopped")

    def _exit(self, why: str) -> None:
        self.machine.world.after(0.0, lambda: self._ended(why))

    def _ended(self, why: str) -> None:
        if self.machine.process is self:
            self.machine.exited(why)


def simulated_config(broker_id: int, values: dict[str, Any]) -> Configuration:
    """Return the configuration of one broker."""
    endpoint = endpoint_of(broker_id)
    return BROKER_SPEC.parse(
        {
            "broker.id": broker_id,
            "log.dir": "/log",
            "quorum.bootstrap.servers": "127.0.0.1:1",
            "grpc.listener": str(endpoint),
            "inter.broker.listener": str(endpoint_of(broker_id, BROKERS)),
            "listeners": f"PLAINTEXT://{endpoint}",
            **values,
        }
    )
