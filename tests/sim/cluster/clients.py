"""All clients of a run: they know what a broker told them last."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.consumer import Consumer
from tests.sim.cluster.machine import Host, ProcessLoop, raise_failure
from tests.sim.cluster.producers import IdempotentProducer, Producer
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.rpc import Rpc
from tests.sim.cluster.transaction_coordinator import Coordinator
from tests.sim.cluster.transactional_clients import CommittedConsumer, TransactionalProducer
from tests.sim.network import Network
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

CLIENT_HOST: Final = 100


class ClientProcess:
    """The one process of all clients."""

    def __init__(self, host: "Host[ClientProcess]") -> None:
        self.loop = ProcessLoop(host.clock_s, lambda: None)
        self.rpc = Rpc(host, self.loop)
        self.listens = False


class Clients:
    """All clients of a run, in one process that nothing befalls."""

    def __init__(
        self, world: World, network: Network, machines: "dict[int, Machine]", checker: Checker
    ) -> None:
        self.world = world
        self.checker = checker
        self.broker_ids = sorted(machines)
        self.host: Host[ClientProcess] = Host(world, network, CLIENT_HOST)
        self.process = ClientProcess(self.host)
        self.is_stopping = False
        self.producers: list[Producer | TransactionalProducer] = []
        self.coordinator: Coordinator | None = None
        """None: nobody writes transactions in this run."""
        self.consumers: list[Consumer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.host.begin(self.process)

    def start(self, producers: int, consumers: int, pace_s: float) -> None:
        kinds = self.world.random.choices([Producer, IdempotentProducer], k=producers)
        self.producers = [kind(self, number, pace_s) for number, kind in enumerate(kinds)]
        self.consumers = [Consumer(self, 10 + number) for number in range(consumers)]
        for work in [one.run() for one in self.producers] + [one.run() for one in self.consumers]:
            self.run(work)

    def start_transactions(self, quorum: SimulatedQuorum, pace_s: float) -> Coordinator:
        """One or two who write transactions, and one who reads what was committed."""
        coordinator = self.coordinator = Coordinator(self, quorum)
        added = [
            TransactionalProducer(self, coordinator, 70 + number, pace_s)
            for number in range(self.world.random.choice([1, 2]))
        ]
        reader = CommittedConsumer(self, 80)
        self.producers += added
        self.consumers.append(reader)
        for work in [coordinator.run(), reader.run(), *(one.run() for one in added)]:
            self.run(work)
        return coordinator

    def run(self, work: Any) -> None:
        """Start the work of a client that ends with the run."""
        self.host.deliver(self.process, partial(self.spawn, work))

    def spawn(self, work: Any) -> None:
        task = self.process.loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(raise_failure)

    @property
    def are_idle(self) -> bool:
        is_ending = self.coordinator is not None and self.coordinator.has_work
        return all(producer.is_idle for producer in self.producers) and not is_ending
