"""A consumer: it follows leaders, and never hears of an offset that goes back."""

from typing import TYPE_CHECKING, Any

from quorate.broker.replication.api import Isolation
from quorate.common.types import TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.client import Client, TopicPart
from tests.sim.cluster.lives import Life
from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients


class Consumer(Client):
    """Tails one partition after the other."""

    def __init__(self, clients: "Clients", number: int) -> None:
        super().__init__(clients, number)
        self.tip: TopicIdPartition | None = None
        self.position = 0
        self._positions: dict[Life, int] = {}
        self._latest: dict[tuple[Life, Isolation], int] = {}
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
        answer = await self.ask(leader, tp, position, epoch)
        if answer is None:
            return False
        code, log_start, _, served, *_ = answer
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
        self._positions[life] = self.take(tip, epoch, position, answer)
        return True

    async def ask(self, leader: int, tp: TopicPart, position: int, epoch: int) -> Any:
        """(error code, log start, records, partition, …); None: no answer."""
        return await self.call(leader, "Fetch", (tp, position, epoch, 300))

    def take(self, tip: TopicIdPartition, epoch: int, position: int, answer: Any) -> int:
        """The next position after an answer."""
        return self.clients.checker.saw(tip, epoch, position, answer[2])

    async def _look_for_the_end(
        self, tp: TopicPart, tip: TopicIdPartition, leader: int, epoch: int
    ) -> None:
        """ListOffsets never goes back, whoever leads, for readers of either isolation."""
        isolation = self.world.random.choice(list(Isolation))
        answer = await self.call(leader, "LatestOffset", (tp, epoch, isolation))
        if answer is None or answer[0] != errors_pb2.NONE or TopicIdPartition(*answer[2]) != tip:
            return
        checker = self.clients.checker
        life = checker.truths.lives.of(tip, epoch)
        latest = self._latest.get((life, isolation), 0)
        if answer[1] < latest and not checker.truths.of(tip, epoch).is_lossy:
            raise Violation(f"the end of {tp} went back from {latest} to {answer[1]}")
        self._latest[life, isolation] = answer[1]
