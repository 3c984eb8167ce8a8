"""Commits, transactions, deletions and coordinators that move, in random order: whatever is known
of offsets is what the log says, read from its beginning by somebody who knows nothing else.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Iterator

import pytest

from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.group_log_format import OffsetKey
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    TransactionEnd,
    TransactionOwner,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place

GROUPS = ("g", "h")
TPS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0))
PRODUCERS = (11, 12, 13)
STEPS = 60

Entries = list[LogBatch | TransactionEnd]
Known = tuple[dict[OffsetKey, int], set[OffsetKey]]
"""Committed offsets, and of what a transaction may still commit one."""


def fate(entries: Entries, batch: LogBatch) -> bool | None:
    """Whether what the batch says counts; None: its transaction has not ended."""
    if batch.producer_id is None:
        return True
    ends = (
        end.committed
        for end in entries[batch.place :]
        if isinstance(end, TransactionEnd) and end.producer_id == batch.producer_id
    )
    return next(ends, None)


def offsets_in(entries: Entries) -> Iterator[tuple[LogBatch, OffsetKey, int | None]]:
    """Batch, partition and offset; None: a tombstone."""
    for batch in (entry for entry in entries if isinstance(entry, LogBatch)):
        for record in batch.records:
            key = log_format.decode_key(record.key)
            if isinstance(key, OffsetKey):
                value = record.value
                yield batch, key, None if value is None else log_format.decode_offset(value).offset


def by_the_log(entries: Entries) -> Known:
    """Batch by batch, each with the first marker behind it: as slow and plain as it can be."""
    committed: dict[OffsetKey, int] = {}
    pending: set[OffsetKey] = set()
    for batch, key, offset in offsets_in(entries):
        counts = fate(entries, batch)
        if offset is None:
            committed.pop(key, None)
            pending.discard(key)
        elif counts is None:
            pending.add(key)
        elif counts:
            committed[key] = offset
    return committed, pending


def by_the_shard(shard: GroupShard) -> Known:
    committed: dict[OffsetKey, int] = {}
    pending: set[OffsetKey] = set()
    for group_id in GROUPS:
        offsets = shard.offsets(group_id)
        for tp in TPS:
            found = offsets.get(tp)
            if found is not None:
                committed[OffsetKey(group_id, tp)] = found.offset
            if tp in offsets.pending:
                pending.add(OffsetKey(group_id, tp))
    return committed, pending


def compacted(entries: Entries, chance: random.Random) -> Entries:
    """What a cleaner may leave: of what is decided some that counts no more is gone."""
    batches = [batch for batch in entries if isinstance(batch, LogBatch)]
    undecided = (batch.place for batch in batches if fate(entries, batch) is None)
    cleanable = min(undecided, default=len(entries))
    aborted = {batch.place for batch in batches if fate(entries, batch) is False}
    last: dict[bytes, int] = {}
    for batch in batches:
        if batch.place < cleanable and batch.place not in aborted:
            last.update({record.key: batch.place for record in batch.records})
    left: Entries = []
    for entry in entries:
        if isinstance(entry, LogBatch) and entry.place < cleanable and chance.random() < 0.7:
            kept = [
                record
                for record in entry.records
                if entry.place not in aborted and last[record.key] == entry.place
            ]
            entry = entry._replace(records=kept)
        left.append(entry)
    return left


class RandomClients:
    """Whoever commits, and whoever leads."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = Place()
        self.shard = self.place.shard()
        self.tasks: list[asyncio.Future[object]] = []
        self.numbers = itertools.count(1)

    async def run(self) -> None:
        await self.shard.load()
        for _ in range(STEPS):
            self.place.log.delay_s = self.random.choice([0.001, 0.01, 0.05])
            step = self.random.choice(
                [self._commit, self._send, self._send, self._forget, self._end, self._end]
            )
            step()
            if self.random.random() < 0.1:
                await self._move()
            await pass_time(self.random.choice([0, 0.001, 0.02]))
            self._never_shows_what_does_not_count()
            if self.random.random() < 0.2:
                await self.settled()
        await self.settled()
        await self._move()
        await self.settled()

    def _never_shows_what_does_not_count(self) -> None:
        if not self.shard.is_loading:
            entries = self.place.log.entries
            counts = {
                (key, offset) for batch, key, offset in offsets_in(entries) if fate(entries, batch)
            }
            assert by_the_shard(self.shard)[0].items() <= counts

    async def settled(self) -> None:
        """Everybody has heard of everything: it is what the log says, compacted or not."""
        await pass_time(10)
        assert all(task.done() for task in self.tasks)
        entries = self.place.log.entries
        assert by_the_shard(self.shard) == by_the_log(entries)
        reader = Place()
        reader.log.entries = compacted(entries, self.random)
        assert by_the_shard(await reader.lead()) == by_the_log(entries)

    async def _move(self) -> None:
        self.shard.end(errors_pb2.NOT_COORDINATOR)
        self.shard = self.place.shard()
        loading = asyncio.create_task(self.shard.load())
        if self.random.random() < 0.5:
            await pass_time(0.01)
            self._end()
        await loading

    def _do(self, work: Awaitable[object]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def _commits(self) -> dict[TopicPartition, CommittedOffset]:
        some = self.random.sample(TPS, self.random.randint(1, len(TPS)))
        return {tp: CommittedOffset(next(self.numbers)) for tp in some}

    def _commit(self) -> None:
        self._do(self.shard.commit(self.random.choice(GROUPS), "", None, -1, self._commits()))

    def _send(self) -> None:
        self.place.log.is_slow = self.random.random() < 0.2
        refused = self.random.random() < 0.1
        self.place.log.refusal = errors_pb2.INVALID_PRODUCER_EPOCH if refused else 0
        who = TransactionOwner("x", self.random.choice(PRODUCERS), 0)
        group_id, commits = self.random.choice(GROUPS), self._commits()

        self._do(self.shard.commit_in_transaction(group_id, who, "", None, -1, commits))

    def _forget(self) -> None:
        self._do(self.shard.forget_offsets(self.random.choice(GROUPS), TPS[:1]))

    def _end(self) -> None:
        """The marker is in the log; the coordinator of that time hears of it somewhat later."""
        end = self.place.log.mark(
            self.random.choice(PRODUCERS), committed=self.random.random() < 0.6
        )
        shard = self.shard

        async def hear() -> None:
            async with self.place.log.in_order:
                await pass_time(self.random.choice([0, 0.005, 0.1]))
            if shard is self.shard:
                shard.end_transaction(end)

        self._do(hear())


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_offsets_are_what_the_log_says(seed: int) -> None:
    await RandomClients(seed).run()
