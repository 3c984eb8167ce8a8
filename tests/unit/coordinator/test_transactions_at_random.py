"""Random producers, and coordinators that are replaced at any moment: what must always hold.

Each record belongs to one transaction of one producer. A transaction ends the same way in all its
partitions, the way its producer was told; and nobody is let in as a producer that another one is.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    AT_REST,
    ProducerEpoch,
)
from quorate.broker.coordinator.transactions.transaction_shard import TransactionShard
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.transaction_world import World

STEPS = 150
NAMES = ("pay", "ship")
TPS = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 5_000
TRY_AGAIN = {
    errors_pb2.CONCURRENT_TRANSACTIONS,
    errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.NOT_COORDINATOR,
}


class Told:
    """What producers were told of each transaction: its records' name → it was committed."""

    def __init__(self) -> None:
        self.ends: dict[str, bool] = {}
        self.given: dict[ProducerEpoch, object] = {}
        self.begun = 0
        self.shut_out: list[tuple[ProducerEpoch | None, int]] = []
        """Who could not come up, and why."""


class Producer:
    """One process: comes up, writes transactions, and asks until it knows what became of each."""

    def __init__(self, name: str, world: World, told: Told, chance: random.Random) -> None:
        self._name = name
        self._world = world
        self._told = told
        self._random = chance
        self._life = object()
        self._has_epochs = chance.random() < 0.5
        """Whether it has transactions v2, so that each end gives it a new epoch."""
        self._late: tuple[ProducerEpoch, TopicPartition, str] | None = None

    async def run(self) -> None:
        """Until it is shut out, crashes or has done enough."""
        producer = await self._come_up(None)
        while producer is not None and self._random.random() < 0.9:
            producer = await self._transaction(producer)
            if producer is None:
                return
            late = self._late
            if self._random.random() < 0.2 or self._is_upgraded():
                producer = await self._come_up(producer)
            if producer is not None and late is not None:
                await self._send_late(*late)

    def _is_upgraded(self) -> bool:
        """Now and then it goes over to the other version; to a newer one in a new epoch, as
        clients do."""
        if self._random.random() < 0.9:
            return False
        self._has_epochs = not self._has_epochs
        return self._has_epochs

    async def _send_late(self, producer: ProducerEpoch, tp: TopicPartition, record: str) -> None:
        """A batch of a transaction that has ended arrives: it must not get in."""
        self._late = None
        if not await self._ask(partial(self._add, producer, tp), patience=3):
            return
        assert not self._world.partitions[tp].write(producer, f"{record}-late"), "got in"

    async def _come_up(self, own: ProducerEpoch | None) -> ProducerEpoch | None:
        while True:
            try:
                shard = self._shard()
                producer = await shard.init_producer(self._name, TIMEOUT_MS, own)
            except KafkaError as error:
                if error.code not in TRY_AGAIN:
                    self._told.shut_out.append((own, error.code))
                    return None
                await self._pause()
                continue
            holder = self._told.given.setdefault(producer, self._life)
            assert holder is self._life, f"{producer} was given to two"
            return producer

    async def _transaction(self, producer: ProducerEpoch) -> ProducerEpoch | None:
        """Return who goes on after it, or None if nobody does."""
        self._told.begun += 1
        record = f"{self._name}-{self._told.begun}"
        for tp in self._random.sample(TPS, self._random.randint(1, len(TPS))):
            if not await self._ask(partial(self._add, producer, tp)):
                return None
            if not self._world.partitions[tp].write(producer, record):
                return None
            if self._random.random() < 0.05:
                return None
            if self._has_epochs:
                self._late = producer, tp, record
            await self._pause()
        if self._random.random() < 0.1:
            await pass_time(2 * TIMEOUT_MS / 1000)
        commit = self._random.random() < 0.6
        ended = await self._ask(partial(self._end, producer, commit), patience=3)
        if not ended and self._random.random() < 0.5:
            commit = not commit  # Somebody has lost patience, and wants the other thing.
            ended = await self._ask(partial(self._end, producer, commit))
        if not ended:
            return None
        self._told.ends[record] = commit
        return self._next

    async def _end(self, producer: ProducerEpoch, commit: bool, shard: TransactionShard) -> int:
        if self._has_epochs:
            self._next = await shard.end_in_next_epoch(self._name, producer, commit=commit)
            assert self._next != producer, "an end begins an epoch"
            holder = self._told.given.setdefault(self._next, self._life)
            assert holder is self._life, f"{self._next} was given to two"
            return errors_pb2.NONE
        self._next = producer
        return await shard.end_transaction(self._name, producer, commit=commit)

    def _add(
        self, producer: ProducerEpoch, tp: TopicPartition, shard: TransactionShard
    ) -> Awaitable[int]:
        if self._has_epochs:
            return shard.add_for_leader(self._name, producer, {tp})
        return shard.add_partitions(self._name, producer, {tp})

    async def _ask(
        self, request: Callable[[TransactionShard], Awaitable[int]], patience: int = 10_000
    ) -> bool:
        for _ in range(patience):
            try:
                code = await request(self._shard())
            except KafkaError as error:
                code = error.code
            if not code:
                return True
            if code not in TRY_AGAIN:
                return False
            await self._pause()
        return False

    def _shard(self) -> TransactionShard:
        shard = self._world.shard
        assert shard is not None
        if shard.is_loading:
            raise KafkaError(errors_pb2.COORDINATOR_NOT_AVAILABLE, "loading")
        return shard

    async def _pause(self) -> None:
        await pass_time(self._random.choice((0.01, 0.1, 0.5)))


class Run:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.world.transaction_version = seed % 3
        self.told = Told()
        self.tasks: set[asyncio.Task[None]] = set()
        self.world.log.fate = self._fate
        self.world.log.pause_s = self._pause_s
        self.world.partitions.pause_s = self._pause_s
        self.faults = 0.15

    def _fate(self) -> str:
        chosen = self.random.random()
        if chosen < self.faults:
            return "refused" if chosen < self.faults / 2 else "in doubt"
        return "taken"

    def _pause_s(self) -> float:
        return self.random.choice((0.0, 0.005, 0.02, 0.1))

    async def play(self) -> None:
        await self.world.lead()
        for _ in range(STEPS):
            await self._step()
            await pass_time(self.random.choice((0.001, 0.05, 0.3)))
        await self._settle()

    async def _step(self) -> None:
        chosen = self.random.random()
        if chosen < 0.15:
            self._start(
                Producer(self.random.choice(NAMES), self.world, self.told, self.random).run()
            )
        elif chosen < 0.2 and self.tasks:
            self.random.choice(sorted(self.tasks, key=id)).cancel()
        elif chosen < 0.3:
            self.world.replace_leader()
            if self.world.shard is not None:
                self._start(self.world.shard.load())
        elif chosen < 0.4:
            self.world.partitions.away ^= {self.random.choice(TPS)}
        elif chosen < 0.5 and self.world.shard is not None:
            await self.world.shard.abort_overdue()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)

    async def _settle(self) -> None:
        """No more faults; whoever is left may finish, and time passes."""
        self.faults = 0.0
        self.world.partitions.away.clear()
        shard = await self.world.lead()
        await pass_time(120)
        for task in self.tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
        for _ in range(3):
            await shard.abort_overdue()
            await pass_time(60)
        assert all(found.state in AT_REST for _, found in shard)

    def check(self) -> None:
        fenced = errors_pb2.PRODUCER_FENCED
        for own, code in self.told.shut_out:
            assert own is not None, f"a new producer is shut out with {code}"
            assert code == fenced, f"{own} is shut out with {code}"
        committed = {r for p in self.world.partitions.of.values() for r in p.committed}
        aborted = {r for p in self.world.partitions.of.values() for r in p.aborted}
        assert not committed & aborted, "one transaction, one end"
        for record, commit in self.told.ends.items():
            assert record not in (aborted if commit else committed), f"{record}: told {commit}"
        for tp, partition in self.world.partitions.of.items():
            assert not partition.open, f"{tp} waits for ever"


@pytest.mark.parametrize("seed", range(40))
async def test_transactions_end_once_whoever_coordinates_them(seed: int) -> None:
    run = Run(seed)
    await run.play()
    run.check()
    assert run.told.begun, "something happened"
