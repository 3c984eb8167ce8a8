"""The groups of one partition: loaded from its log, written to it, and given up with it."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.known_groups import Group
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.coordinator.groups.state.group_effects import Leaver, SyncRequest
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    TransactionOwner,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, join_alone, joining

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 1)
DAY_MS = 86_400_000
COMMIT = CommittedOffset(41, 3, "note", 1_000)


async def test_whoever_takes_over_knows_what_was_answered(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    assert await shard.commit("g", member, None, 1, {TP: COMMIT}) == 0
    shard.end(errors_pb2.NOT_COORDINATOR)

    shard = await place.lead()
    assert shard.heartbeat("g", member, None, 1) == 0
    assert shard.offsets("g").get(TP) == COMMIT
    synced = await shard.sync("g", SyncRequest(0, member, None, 1, None, None, ()))
    assert synced.assignment == b"all"


async def test_members_of_before_have_their_session_timeout_to_show_up(place: Place) -> None:
    await join_alone(await place.lead())
    shard = await place.lead()
    await pass_time(9.9)
    assert {known.group.state for known in shard} == {GroupState.STABLE}
    await pass_time(0.2)
    assert {known.group.state for known in shard} == {GroupState.EMPTY}


async def test_no_session_ends_while_the_coordinator_may_not_answer(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    await pass_time(5)
    await place.pass_in_doubt(60)
    assert {known.group.state for known in shard} == {GroupState.STABLE}
    await pass_time(4.9)
    assert shard.heartbeat("g", member, None, 1) == 0
    await pass_time(10.1)
    assert {known.group.state for known in shard} == {GroupState.EMPTY}


async def test_who_may_not_answer_removes_nobody_even_if_its_session_lasts(place: Place) -> None:
    shard = await place.lead()
    await join_alone(shard)
    place.log.lease_holds = False
    await pass_time(60)
    assert {known.group.state for known in shard} == {GroupState.STABLE}
    place.log.lease_holds = True
    await pass_time(1)
    assert {known.group.state for known in shard} == {GroupState.EMPTY}


async def test_commits_of_one_moment_share_a_batch(place: Place) -> None:
    shard = await place.lead()
    codes = await asyncio.gather(
        *(shard.commit(f"g{n}", "", None, -1, {TP: COMMIT}) for n in range(50))
    )
    assert set(codes) == {0}
    assert [len(batch.records) for batch in place.log.batches] == [50]


async def test_a_commit_that_is_not_in_the_log_is_not_shown(place: Place) -> None:
    shard = await place.lead()
    place.log.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    code = await shard.commit("g", "", None, -1, {TP: COMMIT})
    assert code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert shard.offsets("g").get(TP) is None

    place.log.refusal, place.log.is_stuck = 0, True
    commit = asyncio.create_task(shard.commit("g", "", None, -1, {TP: COMMIT}))
    await pass_time(1)
    assert shard.offsets("g").get(TP) is None
    shard.end(errors_pb2.NOT_COORDINATOR)
    assert await commit == errors_pb2.NOT_COORDINATOR


async def test_commits_of_strangers_to_a_generation_are_refused(place: Place) -> None:
    shard = await place.lead()
    code = await shard.commit("g", "member", None, 4, {TP: COMMIT})
    assert code == errors_pb2.ILLEGAL_GENERATION
    member = await join_alone(shard)
    code = await shard.commit("g", member, None, 9, {TP: COMMIT})
    assert code == errors_pb2.ILLEGAL_GENERATION
    assert shard.offsets("g").get(TP) is None


async def test_who_waits_when_the_leadership_ends_is_sent_elsewhere(place: Place) -> None:
    shard = await place.lead()
    await join_alone(shard)
    waiting = asyncio.create_task(shard.join("g", joining()))
    await pass_time(1)
    shard.end(errors_pb2.NOT_COORDINATOR)
    with pytest.raises(KafkaError, match="__consumer_offsets-7") as refused:
        await waiting
    assert refused.value.code == errors_pb2.NOT_COORDINATOR


async def test_nothing_is_written_after_the_leadership_has_ended(place: Place) -> None:
    shard = await place.lead()
    await join_alone(shard)
    shard.end(errors_pb2.NOT_COORDINATOR)
    written = len(place.log.batches)
    await pass_time(60)
    assert len(place.log.batches) == written


async def test_a_client_that_has_gone_is_not_answered(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    gone = asyncio.create_task(shard.join("g", joining()))
    await pass_time(1)
    gone.cancel()
    await pass_time(1)
    again = await shard.join("g", joining(member, protocols=(("range", b"s"),)))
    assert again.generation_id == 2


async def test_a_group_with_members_is_not_deleted(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    await shard.commit("g", member, None, 1, {TP: COMMIT})
    assert await shard.delete("g") == errors_pb2.NON_EMPTY_GROUP
    shard.leave("g", [Leaver(member)])
    assert await shard.delete("g") == 0
    assert await shard.delete("g") == errors_pb2.GROUP_ID_NOT_FOUND
    shard = await place.lead()
    assert shard.group("g") is None
    assert shard.offsets("g").get(TP) is None


async def test_forgotten_offsets_stay_forgotten(place: Place) -> None:
    shard = await place.lead()
    await shard.commit("g", "", None, -1, {TP: COMMIT, OTHER: COMMIT})
    assert await shard.forget_offsets("g", [TP, TopicPartition("never", 0)]) == 0
    assert await shard.forget_offsets("nobody", [TP]) == errors_pb2.GROUP_ID_NOT_FOUND
    for each in (shard, await place.lead()):
        assert each.offsets("g").get(TP) is None
        assert each.offsets("g").get(OTHER) == COMMIT


def of_orders(_group: Group) -> frozenset[str]:
    return frozenset({"orders"})


async def test_kip_211_what_nobody_needs_any_more_goes_at_last(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    old = COMMIT._replace(committed_ms=place.wall_ms)
    await shard.commit("g", member, None, 1, {TP: old, OTHER: old})
    place.wall_ms += 7 * DAY_MS
    await shard.expire_offsets(7 * DAY_MS, of_orders)
    assert list(shard.offsets("g")) == [TP]

    shard.leave("g", [Leaver(member)])
    place.wall_ms += 7 * DAY_MS - 1
    await shard.expire_offsets(7 * DAY_MS, of_orders)
    assert list(shard.offsets("g")) == [TP]
    place.wall_ms += 1
    await shard.expire_offsets(7 * DAY_MS, of_orders)
    assert shard.group("g") is None
    assert (await place.lead()).group("g") is None


async def test_kip_211_nothing_goes_while_nobody_can_tell_what_is_consumed(place: Place) -> None:
    shard = await place.lead()
    member = await join_alone(shard)
    await shard.commit("g", member, None, 1, {TP: COMMIT})
    place.wall_ms += 70 * DAY_MS
    await shard.expire_offsets(7 * DAY_MS, lambda group: None)
    assert list(shard.offsets("g")) == [TP]


async def test_records_of_other_releases_are_passed_over(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    group = LogRecord(log_format.encode_group_key("g"), b"\0\x63")
    place.log.entries = [LogBatch(0, [LogRecord(b"\0\x63", b"value"), group])]
    shard = await place.lead()
    await shard.commit("h", "", None, -1, {TP: COMMIT})
    shard = await place.lead()
    assert shard.offsets("h").get(TP) == COMMIT
    assert "a record at offset 0 is passed over: key of version 99" in caplog.text
    assert "group g begins anew" in caplog.text


async def test_offsets_of_deleted_partitions_go_in_every_group(place: Place) -> None:
    shard = await place.lead()
    for group_id in ("g", "h"):
        assert await shard.commit(group_id, "", None, -1, {TP: COMMIT, OTHER: COMMIT}) == 0
    pending = TopicPartition("orders", 5)
    await shard.commit_in_transaction(
        "g", TransactionOwner("x", 1, 0), "", None, -1, {pending: COMMIT}
    )
    written = len(place.log.batches)
    await shard.forget_partitions(lambda tp: tp.topic == "orders")
    assert len(place.log.batches) == written + 1, "of all groups together"
    shard.end_transaction(place.log.mark(1, committed=True))
    for each in (shard, await place.lead()):
        assert {known.group.group_id: set(known.offsets) for known in each} == {
            "g": {OTHER},
            "h": {OTHER},
        }


async def test_offsets_of_deleted_partitions_stay_while_the_log_takes_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    shard = await place.lead()
    await shard.commit("g", "", None, -1, {TP: COMMIT})
    place.log.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    await shard.forget_partitions(lambda tp: tp.topic == "orders")
    assert list(shard.offsets("g")) == [TP]
    assert "stay until the next check: COORDINATOR_NOT_AVAILABLE" in caplog.text
