"""Producers, consumers and whoever looks for a leader: they know what a broker told them last."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from metadata_log.types import TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.client import Client, TopicPart
from tests.sim.cluster.lives import Life
from tests.sim.cluster.machine import Host, ProcessLoop, raise_failure
from tests.sim.cluster.producers import IdempotentProducer, Producer
from tests.sim.cluster.rpc import Rpc
from tests.sim.network import Network
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

CLIENT_HOST: Final = 100


class ClientProcess:
    """The one process of all clients."""

    def __init__(self, host: "Host[ClientProcess]") -> None:
        self.loop = ProcessLoop(host.clock_s, lambda: None)
        self.rpc = Rpc(host, self.loop)
        self.listens = False


class Consumer(Client):
    """Tails one partition after the other."""

    def __init__(self, clients: "Clients", number: int) -> None:
        super().__init__(clients, number)
        self.tip: TopicIdPartition | None = None
        self.position = 0
        self._positions: dict[Life, int] = {}
        self._latest: dict[Life, int] = {}
        self._epochs: dict[TopicIdPartition, int] = {}

    async def run(self) -> None:
        while True:
            await self.look()
            if not self.leaders:
                await self.pause(0.3)
                continue
            tp = self.world.random.choice(sorted(self.leaders))
            for _ in range(self.world.random.choice([3, 20])):
                if not await self._fetch(tp):
                    await self.pause(0.1)
                    break

    async def _fetch(self, tp: TopicPart) -> bool:
        known = self.leaders.get(tp)
        if known is None or known[1] < 0:
            return False
        topic_id, leader, epoch = known
        tip = TopicIdPartition(topic_id, tp[1])  # type: ignore[arg-type]
        epoch = self._epochs[tip] = max(epoch, self._epochs.get(tip, -1))
        life = self.clients.checker.truths.lives.of(tip, epoch)
        position = self._positions.get(life, 0)
        if self.world.chance(0.05):
            await self._look_for_the_end(tp, tip, leader, epoch)
        answer = await self.call(leader, "Fetch", (tp, position, epoch, 300))
        if answer is None:
            return False
        code, _, log_start, records, served = answer
        self.check_code(code, "Fetch")
        if served is None or TopicIdPartition(*served) != tip:
            return False
        if code == errors_pb2.OFFSET_OUT_OF_RANGE:
            if position < log_start and self.clients.checker.may_begin(tip, epoch, log_start):
                self._positions[life] = log_start
                return True
            if not self.clients.checker.truths.of(tip, epoch).is_lossy:
                raise Violation(
                    f"a consumer at {position} of {tp} was told by broker {leader}, epoch {epoch}, "
                    "that this offset is out of range"
                )
            self._positions[life] = 0
            return False
        if code != errors_pb2.NONE:
            await self.pause(0.1)
            return False
        self._positions[life] = self.clients.checker.saw(tip, epoch, position, records)
        return True

    async def _look_for_the_end(
        self, tp: TopicPart, tip: TopicIdPartition, leader: int, epoch: int
    ) -> None:
        """ListOffsets never goes back, whoever leads."""
        answer = await self.call(leader, "LatestOffset", (tp, epoch))
        if answer is None or answer[0] != errors_pb2.NONE or TopicIdPartition(*answer[2]) != tip:
            return
        checker = self.clients.checker
        life = checker.truths.lives.of(tip, epoch)
        latest = self._latest.get(life, 0)
        if answer[1] < latest and not checker.truths.of(tip, epoch).is_lossy:
            raise Violation(f"the end of {tp} went back from {latest} to {answer[1]}")
        self._latest[life] = answer[1]


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
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.host.begin(self.process)

    def start(self, producers: int, consumers: int, pace_s: float) -> None:
        kinds = self.world.random.choices([Producer, IdempotentProducer], k=producers)
        self.producers = [kind(self, number, pace_s) for number, kind in enumerate(kinds)]
        self.consumers = [Consumer(self, 10 + number) for number in range(consumers)]
        for work in [one.run() for one in self.producers] + [one.run() for one in self.consumers]:
            self.host.deliver(self.process, partial(self.spawn, work))

    def spawn(self, work: Any) -> None:
        task = self.process.loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(raise_failure)

    @property
    def are_idle(self) -> bool:
        return all(producer.is_idle for producer in self.producers)
