"""One incarnation of a broker: ``BrokerNode`` as it is deployed, in surroundings made up for it."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import grpc.aio

from broker.config.spec import BROKER_SPEC
from broker.control.registration import RegistrationRefused
from broker.controller.door import AuditTrail, no_trail
from broker.errors import KafkaError
from broker.grpc_listener import GrpcListener
from broker.kafka.services import KafkaServices
from broker.listeners import ListenError
from broker.log.store import LogStore, OnFailed, OnFlushed
from broker.node import BrokerNode
from broker.peers import Peer, PeerChannels
from broker.security.grpc_identity import Passwords
from metadata_log.configuration import Configuration
from quorum.errors import QuorumError
from tests.sim.cluster.front_door import FrontDoor
from tests.sim.cluster.machine import Machine, MachineLoop, raise_failure
from tests.sim.cluster.quorum_client import SimulatedQuorumClient
from tests.sim.cluster.rpc import Rpc
from tests.sim.cluster.rpc_frames import BROKERS, CLIENTS, endpoint_of

if TYPE_CHECKING:
    from tests.sim.cluster.quorum import SimulatedQuorum

NAMED_FAILURES = (QuorumError, ListenError, RegistrationRefused, KafkaError, OSError)


class SimulatedSurroundings:
    """What ``BrokerNode`` finds around it."""

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

    def peer_channels(self) -> PeerChannels:
        return PeerChannels(lambda peer, _security: self.open_channel(peer))

    def inter_broker_listener(self) -> GrpcListener:
        return GrpcListener(self._process.rpc.new_server(BROKERS))

    def client_listener(self, passwords: Passwords) -> GrpcListener:
        return GrpcListener(self._process.rpc.new_server(CLIENTS))

    def kafka_listener(self, services: KafkaServices) -> FrontDoor:
        return FrontDoor(self._process.rpc, services)

    def audit_trail(self, cleanup: AsyncExitStack) -> AuditTrail:
        return no_trail

    async def open_store(
        self, cleanup: AsyncExitStack, on_flushed: OnFlushed, on_failed: OnFailed
    ) -> LogStore:
        store = self._machine.disk.open(self._machine, on_flushed, on_failed)
        self._process.store = store
        cleanup.push_async_callback(store.close)
        return store


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
        self.store: LogStore | None = None
        self.is_up = False
        with self.loop.running():
            self.node = BrokerNode(config, SimulatedSurroundings(self))

    @property
    def listens(self) -> bool:
        servers = self.rpc.servers.values()
        return bool(servers) and all(server.is_started for server in servers)

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
            await self.node.start()
        except NAMED_FAILURES as error:
            self._exit(f"{type(error).__name__}: {error}")
        else:
            self.is_up = True
            await self.node.log_failed()
            self.stop()

    async def _stop(self) -> None:
        await self.node.stop()
        self._exit("stopped")

    def _exit(self, why: str) -> None:
        self.machine.world.after(0.0, lambda: self._ended(why))

    def _ended(self, why: str) -> None:
        if self.machine.process is self:
            self.machine.exited(why)


def simulated_config(broker_id: int, values: dict[str, Any]) -> Configuration:
    """Of one broker."""
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
