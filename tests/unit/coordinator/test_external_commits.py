"""Offsets from readers that are no members: never back, in turn, never among members."""

import asyncio
import random

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.external_commits import NOWHERE, ExternalCommits, ReadId
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.memory_log import Place, join_alone

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 1)
READ = ReadId("lake", b"r")


class Groups(GroupCoordinator):
    """All of them in one partition."""

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard

    def shard_of(self, name: str) -> GroupShard:
        return self.shard


class Coordinator:
    """One partition's, and who commits to it from outside."""

    def __init__(self, place: Place, shard: GroupShard) -> None:
        self.place = place
        self.shard = shard
        self.commits = ExternalCommits(Groups(shard), lambda: place.wall_ms)

    def offset(self, tp: TopicPartition = TP) -> int:
        found = self.shard.offsets("lake").get(tp)
        return NOWHERE if found is None else found.offset

    def shown(self) -> list[int]:
        """The offsets of `TP` as they stand in the log, in its order."""
        found = []
        for batch in self.place.log.batches:
            for record in batch.records:
                key = log_format.decode_key(record.key)
                if isinstance(key, log_format.OffsetKey) and key.tp == TP and record.value:
                    found.append(log_format.decode_offset(record.value).offset)
        return found


@pytest.fixture
async def coordinator() -> Coordinator:
    place = Place()
    return Coordinator(place, await place.lead())


async def test_an_offset_that_is_behind_is_left_out(coordinator: Coordinator) -> None:
    commits = coordinator.commits
    assert await commits.commit("lake", {TP: 50}, may_go_back=False) == {TP: NOWHERE}
    before = await commits.commit("lake", {TP: 40, OTHER: 7}, may_go_back=False)
    assert before == {TP: 50, OTHER: NOWHERE}
    assert (coordinator.offset(), coordinator.offset(OTHER)) == (50, 7)


async def test_it_goes_back_when_asked(coordinator: Coordinator) -> None:
    await coordinator.commits.commit("lake", {TP: 50}, may_go_back=False)
    assert await coordinator.commits.commit("lake", {TP: 40}, may_go_back=True) == {TP: 50}
    assert coordinator.offset() == 40


async def test_what_is_committed_again_is_in_use_again(coordinator: Coordinator) -> None:
    await coordinator.commits.commit("lake", {TP: 50}, may_go_back=False)
    coordinator.place.wall_ms += 60_000
    await coordinator.commits.commit("lake", {TP: 50}, may_go_back=False)
    found = coordinator.shard.offsets("lake").get(TP)
    assert found == CommittedOffset(50, committed_ms=coordinator.place.wall_ms)


async def test_commits_at_once_never_go_back_in_the_log(coordinator: Coordinator) -> None:
    """Each is decided when the one before it is in the log, not when it is asked for."""
    offsets = list(range(1, 30))
    random.Random(8).shuffle(offsets)
    commits = coordinator.commits
    await asyncio.gather(*(commits.commit("lake", {TP: o}, may_go_back=False) for o in offsets))
    assert coordinator.shown() == sorted(coordinator.shown())
    assert coordinator.shown()[-1] == coordinator.offset() == 29


async def test_it_is_refused_while_the_group_has_members(coordinator: Coordinator) -> None:
    await join_alone(coordinator.shard, "lake")
    for attempt in (
        coordinator.commits.commit("lake", {TP: 5}, may_go_back=False),
        coordinator.commits.commit_part(READ, 0, 1, {TP: 5}, may_go_back=False),
    ):
        with pytest.raises(KafkaError, match=r"live members \(c at h\)") as refused:
            await attempt
        assert refused.value.code == errors_pb2.NON_EMPTY_GROUP
    with pytest.raises(KafkaError, match="stop them, or choose another group"):
        coordinator.commits.check("lake")
    coordinator.commits.check("another")
    assert coordinator.shown() == []


async def test_a_read_is_committed_with_its_last_part(coordinator: Coordinator) -> None:
    commits = coordinator.commits
    later = await commits.commit_part(READ, 1, 3, {TP: 20}, may_go_back=False)
    assert (later, coordinator.shown()) == (2, [])
    assert await commits.commit_part(READ, 2, 3, {OTHER: 4}, may_go_back=False) == 1
    assert coordinator.shown() == []
    assert await commits.commit_part(READ, 0, 3, {TP: 10}, may_go_back=False) == 0
    assert (coordinator.offset(), coordinator.offset(OTHER)) == (20, 4)


async def test_a_part_that_the_log_did_not_take_is_reported_again(
    coordinator: Coordinator,
) -> None:
    coordinator.place.log.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    commits = coordinator.commits
    await commits.commit_part(READ, 0, 2, {OTHER: 4}, may_go_back=False)
    with pytest.raises(KafkaError):
        await commits.commit_part(READ, 1, 2, {TP: 10}, may_go_back=False)
    coordinator.place.log.refusal = 0
    assert await commits.commit_part(READ, 1, 2, {TP: 10}, may_go_back=False) == 0
    assert (coordinator.offset(), coordinator.offset(OTHER)) == (10, 4)
