"""A partition of __consumer_offsets in memory, and whoever leads it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.group_keys import GroupKey
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.state.group_effects import JoinRequest, SyncRequest
from quorate.broker.coordinator.shards.coordinator_records import (
    CommitOutcomeUnknown,
    LogBatch,
    LogRecord,
    TransactionEnd,
    TransactionOwner,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.quota.work_turns import WorkTurns
from quorate_proto.v1 import errors_pb2
from tests.support.share_fakes import FakeShareStates, share_parts
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.consumer_world import FakeTopics

IDS = itertools.count()


class MemoryLog:
    """It takes some time, and refuses when it is told to."""

    def __init__(self) -> None:
        self.entries: list[LogBatch | TransactionEnd] = []
        self.refusal: int = 0
        self.record_bytes_max = 1 << 30
        self.is_stuck = False
        self.is_slow = False
        """What transactions write is in the log, and nobody hears of it in time."""
        self.delay_s = 0.01
        self.leader_epoch = 0
        self.lease_holds = True
        """Whether its leader may answer from memory."""
        self.in_order = asyncio.Lock()
        """What stands first is committed first, and told of first."""

    @property
    def batches(self) -> list[LogBatch]:
        return [entry for entry in self.entries if isinstance(entry, LogBatch)]

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None
    ) -> int:
        if self.refusal:
            raise KafkaError(self.refusal, "the log takes nothing")
        largest = max((record.size for record in records), default=0)
        if largest > self.record_bytes_max:
            told = f"MESSAGE_TOO_LARGE: {largest} bytes"
            raise KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, told)
        place = len(self.entries)
        producer_id = None if transaction is None else transaction.producer_id
        self.entries.append(LogBatch(place, list(records), producer_id))
        is_slow = self.is_slow and transaction is not None
        async with self.in_order:
            await pass_time(3600 if self.is_stuck else self.delay_s)
        if is_slow:
            raise CommitOutcomeUnknown(
                errors_pb2.COORDINATOR_NOT_AVAILABLE, "too few have it", place
            )
        return place

    def mark(self, producer_id: int, *, committed: bool) -> TransactionEnd:
        """The transaction's coordinator has its marker written."""
        end = TransactionEnd(len(self.entries), producer_id, committed)
        self.entries.append(end)
        return end

    async def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        for entry in tuple(self.entries):
            await pass_time(0.01)
            yield entry


class Led(LedPartition):
    """The log while nobody else leads it."""

    def __init__(self, log: MemoryLog) -> None:
        log.leader_epoch += 1
        self._log = log
        self._leader_epoch = log.leader_epoch

    @property
    def has_valid_lease(self) -> bool:
        return self._log.lease_holds

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        if self._leader_epoch != self._log.leader_epoch:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, "another leads")
        return await self._log.append(records, transaction)

    def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        return self._log.replay()


def consumer_parts(
    topics: Topics, set_for_groups: Mapping[tuple[str, GroupKey], int] | None = None
) -> ConsumerGroupParts:
    """What consumer groups share, with the default configuration but for what groups set."""
    config = BROKER_SPEC.parse(
        {"broker.id": "1", "quorum.bootstrap.servers": "localhost:1", "log.dir": "log"}
    )

    def of_group(group_id: str, key: GroupKey) -> int:
        return (set_for_groups or {}).get((group_id, key), config[key.of_broker])

    return ConsumerGroupParts.of(config, topics, WorkTurns(), of_group)


class Place:
    """A log, and whoever leads it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.wall_ms = 1_000_000
        self.doubt_ms = 0
        self.topics = FakeTopics()
        self.set_for_groups: dict[tuple[str, GroupKey], int] = {}
        self.states = FakeShareStates()

    def shard(self) -> GroupShard:
        """A new leader that knows nothing yet."""
        loop = asyncio.get_running_loop()
        clock = ShardClock(lambda: int(loop.time() * 1000) - self.doubt_ms, lambda: self.wall_ms)
        limits = GroupLimits(max_members=100, initial_delay_ms=0)
        parts = consumer_parts(self.topics, self.set_for_groups)
        return GroupShard(
            "__consumer_offsets-7",
            Led(self.log),
            limits,
            clock,
            parts,
            share_parts(self.topics, self.states),
        )

    async def pass_in_doubt(self, seconds: float) -> None:
        """Let time pass in which the leader may not answer, because its session is in doubt."""
        self.log.lease_holds = False
        for _ in range(int(seconds * 10)):
            self.doubt_ms += 100
            await pass_time(0.1)
        self.log.lease_holds = True

    async def lead(self) -> GroupShard:
        shard = self.shard()
        await shard.load()
        return shard


def joining(member_id: str = "", **others: object) -> JoinRequest:
    new_id = f"member-{next(IDS)}"
    asked = JoinRequest(
        0, member_id, new_id, None, "c", "h", 10_000, 60_000, "consumer", (("range", b"s"),), False
    )
    return asked._replace(**others)  # type: ignore[arg-type]


async def join_alone(shard: GroupShard, group_id: str = "g", assignment: bytes = b"all") -> str:
    """A group of one member, stable."""
    joined = await shard.join(group_id, joining())
    member = joined.member_id
    request = SyncRequest(
        0, member, None, joined.generation_id, None, None, ((member, assignment),)
    )
    assert (await shard.sync(group_id, request)).assignment == assignment
    return member
