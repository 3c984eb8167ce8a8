"""What a group commits counts once the log has it, whatever else happens until then."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import pytest

from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.known_groups import Group
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.shards.coordinator_records import (
    CommitOutcomeUnknown,
    LogRecord,
    TransactionOwner,
)
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, join_alone

T = TypeVar("T")

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 1)
DAY_MS = 86_400_000
COMMIT = CommittedOffset(41, 3, "note", 1_000)


def nothing(_group: Group) -> frozenset[str]:
    return frozenset()


def committing(shard: GroupShard, group_id: str, tp: TopicPartition) -> "asyncio.Task[int]":
    return asyncio.create_task(shard.commit(group_id, "", None, -1, {tp: COMMIT}))


async def assert_as_in_log(place: Place, shard: GroupShard) -> None:
    after = await place.lead()
    assert set(after.offsets("g")) == set(shard.offsets("g"))


async def test_a_commit_behind_a_deletion_is_kept(place: Place) -> None:
    shard = await place.lead()
    assert await committing(shard, "g", TP) == 0
    deletion = asyncio.create_task(shard.delete("g"))
    await pass_time(0.005)
    assert await committing(shard, "g", OTHER) == await deletion == 0
    assert list(shard.offsets("g")) == [OTHER]
    await assert_as_in_log(place, shard)


async def test_a_commit_before_a_deletion_is_deleted(place: Place) -> None:
    shard = await place.lead()
    commit = committing(shard, "g", TP)
    await pass_time(0.005)
    assert await shard.delete("g") == 0
    assert await commit == 0
    assert shard.group("g") is None
    await assert_as_in_log(place, shard)


async def test_an_offset_that_is_being_replaced_does_not_expire(place: Place) -> None:
    shard = await place.lead()
    assert await committing(shard, "g", TP) == 0
    place.wall_ms += 8 * DAY_MS
    commit = committing(shard, "g", TP)
    await pass_time(0.005)
    await shard.expire_offsets(7 * DAY_MS, nothing)
    assert await commit == 0
    assert shard.offsets("g").get(TP) == COMMIT
    await assert_as_in_log(place, shard)


async def test_what_is_in_the_log_is_known_though_its_client_is_gone(place: Place) -> None:
    shard = await place.lead()
    owner = TransactionOwner("t", 7, 0)
    in_transaction = shard.commit_in_transaction("g", owner, "", None, -1, {OTHER: COMMIT})
    gone = [committing(shard, "g", TP), asyncio.create_task(in_transaction)]
    await pass_time(0.005)
    for each in gone:
        each.cancel()
    await pass_time(1)
    shard.end_transaction(place.log.mark(7, committed=True))
    assert {*shard.offsets("g")} == {TP, OTHER}
    assert not shard.offsets("g").pending, "nobody waits for it for ever"
    await assert_as_in_log(place, shard)


class SlowTurns(WorkTurns):
    """Others need the event loop between any two steps."""

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        for item in items:
            yield item
            await pass_time(10)


@pytest.mark.parametrize("after_s", [0.0, 5.0, 10.005, 10.5, 12.0, 25.0])
async def test_an_end_during_the_load_is_not_forgotten(place: Place, after_s: float) -> None:
    """Whether the broker does not know the topics yet, reads the log, or makes the groups of it."""
    shard = await place.lead()
    owner = TransactionOwner("t", 7, 0)
    for group_id in ("f", "g"):
        await shard.commit_in_transaction(group_id, owner, "", None, -1, {OTHER: COMMIT})
    shard = place.shard()
    shard._consumer_parts = shard._consumer_parts._replace(turns=SlowTurns())
    place.topics.hide()
    loading = asyncio.create_task(shard.load())
    asyncio.get_running_loop().call_later(10, place.topics.show)
    await pass_time(after_s)
    assert shard.is_loading
    shard.end_transaction(place.log.mark(7, committed=True))
    await loading
    for group_id in ("f", "g"):
        assert {*shard.offsets(group_id)} == {OTHER}
        assert not shard.offsets(group_id).pending


async def test_a_group_made_anew_is_not_taken_for_the_one_before(place: Place) -> None:
    shard = await place.lead()
    for group_id in ("f", "g"):
        assert await committing(shard, group_id, TP) == 0
    place.wall_ms += 8 * DAY_MS
    deletion = asyncio.create_task(shard.delete("g"))
    await pass_time(0.005)
    expiry = asyncio.create_task(shard.expire_offsets(7 * DAY_MS, nothing))
    assert await deletion == 0
    member = await join_alone(shard, "g")
    await expiry
    assert (await place.lead()).heartbeat("g", member, None, 1) == 0


async def test_an_offset_that_may_be_forgotten_is_not_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deletion is in the log, and will be there for good unless the leader fails."""
    shard = await place.lead()
    assert await committing(shard, "g", TP) == 0
    append = place.log.append

    async def append_and_wait_in_vain(
        records: Sequence[LogRecord], transaction: TransactionOwner | None
    ) -> int:
        at = await append(records, transaction)
        raise CommitOutcomeUnknown(errors_pb2.COORDINATOR_NOT_AVAILABLE, "too few have it", at)

    monkeypatch.setattr(place.log, "append", append_and_wait_in_vain)
    code = await shard.forget_offsets("g", [TP])
    assert code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert shard.offsets("g").get(TP) is None
    await assert_as_in_log(place, shard)
