"""Producers, consumers and whoever looks for a leader: they know what a broker told them last."""

import asyncio
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from broker.errors import error_name
from metadata_log.types import TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.front_door import SERVICE
from tests.sim.cluster.lives import Life
from tests.sim.cluster.machine import Host, ProcessLoop, raise_failure
from tests.sim.cluster.rpc import Rpc
from tests.sim.cluster.rpc_frames import endpoint_of
from tests.sim.network import Network
from tests.sim.world import Violation, World
from tests.support.record_batches import assemble

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

CLIENT_HOST: Final = 100
CALL_TIMEOUT_S: Final = 3.0

UNEXPECTED: Final = frozenset(
    {
        errors_pb2.UNKNOWN_SERVER_ERROR,
        errors_pb2.CORRUPT_MESSAGE,
        errors_pb2.INVALID_RECORD,
        errors_pb2.INVALID_REQUEST,
    }
)

TopicPart = tuple[str, int]


class ClientProcess:
    """The one process of all clients."""

    def __init__(self, host: "Host[ClientProcess]") -> None:
        self.loop = ProcessLoop(host.clock_s, lambda: None)
        self.rpc = Rpc(host, self.loop)
        self.listens = False


class Client:
    """Calls brokers, and remembers the newest leaderships it was told."""

    def __init__(self, clients: "Clients", number: int) -> None:
        self.clients = clients
        self.number = number
        self.world = clients.world
        self.leaders: dict[TopicPart, tuple[bytes, int, int]] = {}
        self._channels: dict[int, Any] = {}
        self.is_idle = False

    async def call(self, broker: int, name: str, request: Any) -> Any:
        """The broker's answer, None if there is none in time."""
        channel = self.channel(broker)
        method = channel.unary_unary(f"/{SERVICE}/{name}", pickle.dumps, pickle.loads)
        try:
            return await method(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return None

    def channel(self, broker: int) -> Any:
        """This client's connection to a broker."""
        channel = self._channels.get(broker)
        if channel is None:
            rpc = self.clients.process.rpc
            channel = self._channels[broker] = rpc.open_channel(endpoint_of(broker))
        return channel

    def any_broker(self) -> int:
        return self.world.random.choice(self.clients.broker_ids)

    async def look(self) -> None:
        """Ask any broker who leads what."""
        told = await self.call(self.any_broker(), "Metadata", None)
        if told is None:
            await self.pause(0.2)
            return
        fresh = {}
        for tp, (topic_id, leader, epoch) in told.items():
            known = self.leaders.get(tp)
            if known is not None and known[0] == topic_id and known[2] > epoch:
                fresh[tp] = known
            else:
                fresh[tp] = (topic_id, leader, epoch)
        self.leaders = fresh

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.world.between(0.5, 1.5))

    def check_code(self, code: int, what: str) -> None:
        if code in UNEXPECTED:
            raise Violation(f"client {self.number}: {what} answered {error_name(code)}")


class Producer(Client):
    """One record at a time, each a value of its own, until it is acknowledged."""

    def __init__(self, clients: "Clients", number: int, pace_s: float) -> None:
        super().__init__(clients, number)
        self._pace_s = pace_s
        self._sent = 0
        self._last: dict[Life, int] = {}

    async def run(self) -> None:
        while not self.clients.is_stopping:
            await self.pause(self._pace_s)
            if not self.leaders or self.world.chance(0.02):
                await self.look()
            if self.leaders:
                await self._produce(self.world.random.choice(sorted(self.leaders)))
        self.is_idle = True

    async def _produce(self, tp: TopicPart) -> None:
        self._sent += 1
        value = b"<%d.%d>" % (self.number, self._sent)
        acks = 1 if self.world.chance(0.1) else -1
        records = 1 + (self.world.random.random() < 0.2)
        batch = assemble(value, base_offset=0, last_delta=records - 1, count=records)
        for _ in range(6):
            known = self.leaders.get(tp)
            if known is None:
                return
            answer = None
            if known[1] >= 0:
                answer = await self.call(known[1], "Produce", (tp, batch, acks, 1_500))
            if answer is not None and answer[0] == errors_pb2.NONE:
                if acks == -1:
                    self._acknowledged(TopicIdPartition(*answer[2]), answer[1], value, answer[3])
                return
            if answer is not None:
                self.check_code(answer[0], "Produce")
            await self.pause(0.1)
            await self.look()

    def _acknowledged(self, tip: TopicIdPartition, offset: int, value: bytes, epoch: int) -> None:
        checker = self.clients.checker
        checker.acked(tip, offset, value, epoch)
        life = checker.truths.lives.of(tip, epoch)
        if offset <= self._last.get(life, -1) and not checker.truths.of(tip, epoch).is_lossy:
            raise Violation(f"{value!r} was acknowledged at {offset}, behind an earlier one")
        self._last[life] = offset


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
        code, _, _, records, served = answer
        self.check_code(code, "Fetch")
        if served is None or TopicIdPartition(*served) != tip:
            return False
        if code == errors_pb2.OFFSET_OUT_OF_RANGE:
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
        self.producers = [Producer(self, number, pace_s) for number in range(producers)]
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
