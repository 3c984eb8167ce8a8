"""Offsets of transactions: pending until the marker, then as if they had always been there."""

import asyncio

import pytest

from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.group_effects import Leaver
from quorate.broker.coordinator.shards.coordinator_records import TransactionOwner
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, join_alone

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 1)
DAY_MS = 86_400_000
ANNA = TransactionOwner("anna", producer_id=11, producer_epoch=3)
BERT = TransactionOwner("bert", producer_id=12, producer_epoch=0)
OLD, NEW = CommittedOffset(41), CommittedOffset(42)


async def send(shard: GroupShard, who: TransactionOwner = ANNA, tp: TopicPartition = TP) -> None:
    assert await shard.commit_in_transaction("g", who, "", None, -1, {tp: NEW}) == 0


async def end(place: Place, shard: GroupShard, who: TransactionOwner, *, committed: bool) -> None:
    shard.end_transaction(place.log.mark(who.producer_id, committed=committed))


@pytest.mark.parametrize(("committed", "left"), [(True, NEW), (False, OLD)])
async def test_offsets_of_a_transaction_count_when_it_is_committed(
    place: Place, committed: bool, left: CommittedOffset
) -> None:
    shard = await place.lead()
    assert await shard.commit("g", "", None, -1, {TP: OLD}) == 0
    await send(shard)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) == OLD
        assert TP in each.offsets("g").pending
    await end(place, shard, ANNA, committed=committed)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) == left
        assert not each.offsets("g").pending


async def test_a_transaction_ends_for_its_own_producer_alone(place: Place) -> None:
    shard = await place.lead()
    await send(shard, ANNA)
    await send(shard, BERT, OTHER)
    await end(place, shard, ANNA, committed=False)
    assert list(shard.offsets("g").pending) == [OTHER]
    await end(place, shard, BERT, committed=True)
    assert list(shard.offsets("g")) == [OTHER]


async def test_offsets_are_unstable_from_the_moment_that_they_are_sent(place: Place) -> None:
    shard = await place.lead()
    place.log.is_stuck = True
    sent = asyncio.create_task(send(shard))
    await pass_time(1)
    assert TP in shard.offsets("g").pending
    sent.cancel()


async def test_what_the_log_refused_is_not_pending(place: Place) -> None:
    shard = await place.lead()
    place.log.refusal = errors_pb2.INVALID_PRODUCER_EPOCH
    code = await shard.commit_in_transaction("g", ANNA, "", None, -1, {TP: NEW})
    assert code == errors_pb2.INVALID_PRODUCER_EPOCH
    assert not shard.offsets("g").pending


async def test_what_may_be_in_the_log_is_pending_and_counts_with_the_marker(place: Place) -> None:
    shard = await place.lead()
    place.log.is_slow = True
    code = await shard.commit_in_transaction("g", ANNA, "", None, -1, {TP: NEW})
    assert code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert TP in shard.offsets("g").pending
    await end(place, shard, ANNA, committed=True)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) == NEW


async def test_a_marker_heard_of_before_what_it_ends_ends_it_all_the_same(place: Place) -> None:
    shard = await place.lead()
    sent = asyncio.create_task(send(shard))
    await pass_time(0.005)
    await end(place, shard, ANNA, committed=True)
    assert shard.offsets("g").get(TP) is None
    await sent
    assert shard.offsets("g").get(TP) == NEW
    assert not shard.offsets("g").pending


async def test_a_marker_does_not_end_what_stands_behind_it(place: Place) -> None:
    shard = await place.lead()
    marker = place.log.mark(ANNA.producer_id, committed=True)
    sent = asyncio.create_task(send(shard))
    await pass_time(0.005)
    shard.end_transaction(marker)
    await sent
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) is None
        assert TP in each.offsets("g").pending
    await end(place, shard, ANNA, committed=True)
    assert shard.offsets("g").get(TP) == NEW


async def test_a_marker_heard_of_late_does_not_end_what_came_behind_it(place: Place) -> None:
    shard = await place.lead()
    marker = place.log.mark(ANNA.producer_id, committed=True)
    await send(shard)
    shard.end_transaction(marker)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) is None
        assert TP in each.offsets("g").pending


async def test_a_later_commit_is_not_undone_by_an_earlier_transaction(place: Place) -> None:
    """By their own places, not the marker's: compaction would keep the last of them, too."""
    shard = await place.lead()
    await send(shard)
    assert await shard.commit("g", "", None, -1, {TP: OLD}) == 0
    await end(place, shard, ANNA, committed=True)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) == OLD


async def test_deleted_offsets_do_not_come_back_with_a_transaction(place: Place) -> None:
    shard = await place.lead()
    await send(shard)
    assert await shard.forget_offsets("g", [TP, OTHER]) == 0
    assert not shard.offsets("g").pending
    await end(place, shard, ANNA, committed=True)
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) is None


async def test_a_deleted_group_does_not_come_back_with_a_transaction(place: Place) -> None:
    shard = await place.lead()
    await send(shard)
    assert await shard.delete("g") == 0
    assert shard.group("g") is None
    await end(place, shard, ANNA, committed=True)
    for each in (shard, await place.lead()):
        assert each.group("g") is None


async def test_markers_written_while_the_log_is_read_are_not_lost(place: Place) -> None:
    shard = await place.lead()
    await send(shard)
    shard = place.shard()
    loading = asyncio.create_task(shard.load())
    await pass_time(0.001)
    await end(place, shard, ANNA, committed=True)
    await loading
    assert shard.offsets("g").get(TP) == NEW
    assert not shard.offsets("g").pending


async def test_pending_offsets_keep_what_they_are_to_replace_and_their_group(place: Place) -> None:
    shard = await place.lead()
    await shard.commit("g", "", None, -1, {TP: OLD})
    await shard.commit("h", "", None, -1, {TP: OLD})
    await send(shard)
    place.wall_ms += 70 * DAY_MS
    await shard.expire_offsets(7 * DAY_MS, lambda group: None)
    assert list(shard.offsets("g")) == [TP]
    assert shard.group("h") is None
    await end(place, shard, ANNA, committed=False)
    await shard.expire_offsets(7 * DAY_MS, lambda group: None)
    assert shard.group("g") is None
    assert (await place.lead()).group("g") is None


async def test_kip_447_a_producer_speaks_for_a_member_of_the_generation(place: Place) -> None:
    shard = await place.lead()
    code = await shard.commit_in_transaction("g", ANNA, "m", None, 1, {TP: NEW})
    assert code == errors_pb2.ILLEGAL_GENERATION, "a group that nobody knows"
    member = await join_alone(shard)

    async def answer(member_id: str, instance_id: str | None, generation_id: int) -> int:
        return await shard.commit_in_transaction(
            "g", ANNA, member_id, instance_id, generation_id, {TP: NEW}
        )

    assert await answer(member, None, 1) == 0
    assert await answer(member, None, 0) == errors_pb2.ILLEGAL_GENERATION
    assert await answer("other", None, 1) == errors_pb2.UNKNOWN_MEMBER_ID
    assert await answer(member, "instance", 1) == errors_pb2.UNKNOWN_MEMBER_ID
    assert await answer("", None, -1) == 0, "an old producer does not say whom it speaks for"
    shard.leave("g", [Leaver(member)])
    assert await answer(member, None, 1) == errors_pb2.UNKNOWN_MEMBER_ID


async def test_transactions_of_one_moment_have_batches_of_their_own(place: Place) -> None:
    shard = await place.lead()
    plain = shard.commit("h", "", None, -1, {TP: OLD})
    await asyncio.gather(send(shard, ANNA), send(shard, ANNA, OTHER), send(shard, BERT), plain)
    assert [(len(batch.records), batch.producer_id) for batch in place.log.batches] == [
        (2, ANNA.producer_id),
        (1, BERT.producer_id),
        (1, None),
    ]
