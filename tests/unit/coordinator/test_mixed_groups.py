"""Groups that change their protocol while they have members, event by event."""

import asyncio
from collections.abc import Collection

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
)
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.migration import MigrationPolicy
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.embedded_protocol import (
    read_assignment,
    write_assignment,
)
from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.coordinator.groups.state.group_effects import Leaver, SyncAnswer, SyncRequest
from quorate.broker.coordinator.groups.state.group_log_format import encode_group_key
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, consumer_parts, joining
from tests.unit.coordinator.mixed_world import TOPIC, everything, write_subscription

TP = TopicPartition(TOPIC, 0)
COMMIT = CommittedOffset(41, 3, "", 1_000)
ALL = frozenset(range(4))


def protocols(name: str = "range", has: Collection[int] = ()) -> tuple[tuple[str, bytes], ...]:
    return ((name, write_subscription([TOPIC], {TOPIC: has} if has else {})),)


async def classic_join(shard: GroupShard, member_id: str = "", **others: object) -> tuple[str, int]:
    """Return the member id and the generation."""
    asked: dict[str, object] = {"protocols": protocols(), **others}
    answer = await shard.join("g", joining(member_id, **asked))
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


async def classic_sync(
    shard: GroupShard, member_id: str, generation: int, assigned: dict[str, set[int]] | None = None
) -> SyncAnswer:
    assignments = tuple(
        (each, write_assignment(1, {TOPIC: own} if own else {}))
        for each, own in (assigned or {}).items()
    )
    request = SyncRequest(0, member_id, None, generation, "consumer", None, assignments)
    return await shard.sync("g", request)


def partitions(answer: SyncAnswer) -> frozenset[int]:
    assert answer.error_code == 0
    return read_assignment(answer.assignment).partitions.get(TOPIC, frozenset())


async def classic_alone(shard: GroupShard, **others: object) -> str:
    """A classic group of one member, which has everything."""
    member_id, generation = await classic_join(shard, "", **others)
    answer = await classic_sync(shard, member_id, generation, {member_id: {0, 1, 2, 3}})
    assert partitions(answer) == ALL
    return member_id


async def beat(
    shard: GroupShard, member_id: str, epoch: int = 0, has: set[int] | None = None, **others: object
) -> HeartbeatAnswer:
    joins = epoch == 0
    topic_id = shard._consumer_parts.topics.topics[TOPIC].topic_id
    request = HeartbeatRequest(
        member_id,
        epoch,
        "c",
        "h",
        rebalance_timeout_ms=60_000 if joins else -1,
        topic_names=frozenset({TOPIC}) if joins else None,
        claimed={topic_id: frozenset(has)} if has else {},
    )
    request = request._replace(**others)  # type: ignore[arg-type]
    return await shard.consumer_heartbeat("g", request, everything)


def has_of(answer: HeartbeatAnswer) -> set[int]:
    assert answer.assigned is not None
    return {p for own in answer.assigned.values() for p in own}


async def leave(shard: GroupShard, member_id: str) -> None:
    request = HeartbeatRequest(member_id, -1, "c", "h")
    await shard.consumer_heartbeat("g", request, everything)


async def refusal(shard: GroupShard, member_id: str) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        await beat(shard, member_id)
    return refused.value


@pytest.fixture
def place(place: Place) -> Place:
    place.topics.create(TOPIC, 4)
    return place


def consumers(shard: GroupShard) -> ConsumerGroup:
    group = shard.group("g")
    assert isinstance(group, ConsumerGroup)
    return group


def classics(shard: GroupShard) -> ClassicGroup:
    group = shard.group("g")
    assert isinstance(group, ClassicGroup)
    return group


def set_policy(shard: GroupShard, policy: MigrationPolicy) -> None:
    shard._consumer_parts = shard._consumer_parts._replace(migration_policy=policy)


# -- to the consumer protocol ----------------------------------------------------------------------


async def test_a_classic_member_goes_on_until_its_next_heartbeat(place: Place) -> None:
    shard = await place.lead()
    classic = await classic_alone(shard)
    assert await shard.commit("g", classic, None, 1, {TP: COMMIT}) == 0
    answer = await beat(shard, "a")
    assert not has_of(answer), "the classic member still has everything"
    assert shard.offsets("g").get(TP) == COMMIT
    assert shard.heartbeat("g", classic, None, 1) == errors_pb2.REBALANCE_IN_PROGRESS
    _, generation = await classic_join(shard, classic)
    assert generation == answer.member_epoch == 2
    kept = partitions(await classic_sync(shard, classic, generation))
    assert len(kept) == 2
    assert has_of(await beat(shard, "a", 2, set())) == ALL - kept
    assert shard.heartbeat("g", classic, None, 2) == 0
    assert consumers(shard).state.value == "Stable"


async def test_another_coordinator_knows_members_of_both_protocols(place: Place) -> None:
    shard = await place.lead()
    classic = await classic_alone(shard)
    await beat(shard, "a")
    before, after = consumers(shard), consumers(await place.lead())
    assert {each.member_id: (each.metadata, each.current) for each in after.members} == {
        each.member_id: (each.metadata, each.current) for each in before.members
    }
    found = after.members.get(classic)
    assert found is not None
    assert found.is_classic
    assert (after.epoch, after.target_epoch) == (before.epoch, before.target_epoch)


async def test_an_upgrade_is_in_the_log_as_a_whole_or_not_at_all(place: Place) -> None:
    shard = await place.lead()
    large = write_subscription([TOPIC], {})
    padded = large[:-8] + (400_000).to_bytes(4) + bytes(400_000) + large[-4:]
    await classic_alone(shard, protocols=(("range", padded), ("sticky", padded)))
    count = len(place.log.batches)
    await beat(shard, "a")
    assert isinstance((await place.lead()).group("g"), ConsumerGroup)
    del place.log.entries[count + 1 :]
    after = consumers(await place.lead())
    assert len(after.members) == 2, "the first batch has the classic member and the one that joins"


async def test_a_member_keeps_what_it_had_when_it_joined_until_it_joins_again(
    place: Place,
) -> None:
    """A cooperative member has just been told to give partitions up, and may still have them."""
    shard = await place.lead()
    cooperative = "cooperative-sticky"
    claims = protocols(cooperative, has={0, 1, 3})
    member_id, _ = await classic_join(shard, protocols=claims)
    await classic_sync(shard, member_id, 1, {member_id: {0, 1}})
    assert has_of(await beat(shard, "a")) == {2}, "and not the partition 3"
    assert shard.heartbeat("g", member_id, None, 1) == errors_pb2.REBALANCE_IN_PROGRESS
    again = protocols(cooperative, has={0, 1})
    assert (await classic_join(shard, member_id, protocols=again))[1] == 2
    assert has_of(await beat(shard, "a", 2, {2})) == {2, 3}


async def test_a_cooperative_member_gives_up_before_another_one_gets(place: Place) -> None:
    shard = await place.lead()
    cooperative = "cooperative-sticky"
    member_id = await classic_alone(shard, protocols=protocols(cooperative))
    await beat(shard, "a")
    claims = protocols(cooperative, has=set(ALL))
    _, generation = await classic_join(shard, member_id, protocols=claims)
    assert generation == 1, "it stays in its epoch until it has given up its part"
    kept = set(partitions(await classic_sync(shard, member_id, generation)))
    assert len(kept) == 2
    assert (await beat(shard, "a", 2, set())).assigned is None, "it still has them"
    assert shard.heartbeat("g", member_id, None, 1) == errors_pb2.REBALANCE_IN_PROGRESS
    _, generation = await classic_join(shard, member_id, protocols=protocols(cooperative, has=kept))
    assert generation == 2
    assert has_of(await beat(shard, "a", 2, set())) == ALL - kept


async def test_members_that_wait_for_each_other_are_asked_to_join_again(place: Place) -> None:
    shard = await place.lead()
    first = await classic_alone(shard)
    waiting = joining(protocols=protocols())
    second = asyncio.create_task(shard.join("g", waiting))
    await pass_time(0.1)
    assert classics(shard).state is GroupState.PREPARING_REBALANCE
    await beat(shard, "a")
    assert (await second).error_code == errors_pb2.REBALANCE_IN_PROGRESS
    assert {each.member_id for each in consumers(shard).members} == {first, "a"}
    await classic_join(shard, waiting.new_member_id)
    assert len(consumers(shard).members) == 3


async def test_what_a_classic_group_was_writing_does_not_count_afterwards(place: Place) -> None:
    shard = await place.lead()
    member_id, generation = await classic_join(shard)
    syncing = asyncio.create_task(classic_sync(shard, member_id, generation, {member_id: set(ALL)}))
    await asyncio.sleep(0)
    await beat(shard, "a")
    assert (await syncing).error_code == errors_pb2.REBALANCE_IN_PROGRESS
    for _ in range(5):
        await pass_time(9)
        _, generation = await classic_join(shard, member_id)
        await beat(shard, "a")
    records = [record for batch in place.log.batches for record in batch.records]
    assert [each.value for each in records if each.key == encode_group_key("g")][-1] is None


async def test_a_group_that_is_too_large_for_one_batch_keeps_its_protocol(place: Place) -> None:
    shard = await place.lead()
    large = write_subscription([TOPIC], {})
    padded = large[:-8] + (1_000_000).to_bytes(4) + bytes(1_000_000) + large[-4:]
    member_id = await classic_alone(shard, protocols=(("range", padded),))
    refused = await refusal(shard, "a")
    assert refused.code == errors_pb2.GROUP_ID_NOT_FOUND
    assert "at most" in refused.message
    assert shard.heartbeat("g", member_id, None, 1) == 0


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"protocol_type": "connect"}, "of the type 'connect'"),
        ({"protocols": (("range", b"s"),)}, "is malformed"),
    ],
)
async def test_groups_of_no_consumers_keep_their_protocol(
    place: Place, others: dict[str, object], reason: str
) -> None:
    shard = await place.lead()
    member_id, generation = await classic_join(shard, "", **others)
    request = SyncRequest(0, member_id, None, generation, None, None, ((member_id, b""),))
    await shard.sync("g", request)
    refused = await refusal(shard, "a")
    assert refused.code == errors_pb2.GROUP_ID_NOT_FOUND
    assert reason in refused.message
    assert shard.heartbeat("g", member_id, None, generation) == 0


async def classic_with_user_data(shard: GroupShard, assignor: str) -> str:
    """A classic group of one member, whose assignment has data of that assignor."""
    member_id, generation = await classic_join(shard, protocols=protocols(assignor))
    assignment = write_assignment(1, {TOPIC: ALL})[:-4] + b"\0\0\0\1x"
    request = SyncRequest(0, member_id, None, generation, None, None, ((member_id, assignment),))
    await shard.sync("g", request)
    return member_id


async def test_an_assignment_with_data_of_its_own_is_not_lost(place: Place) -> None:
    shard = await place.lead()
    await classic_with_user_data(shard, "our-own")
    assert "clients' assignor" in (await refusal(shard, "a")).message
    assert classics(shard).state is GroupState.STABLE


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_data_of_the_clients_standard_assignors_does_not_keep_a_group_classic(
    place: Place, assignor: str
) -> None:
    """librdkafka repeats in an assignment what the member said that it had."""
    shard = await place.lead()
    member_id = await classic_with_user_data(shard, assignor)
    await beat(shard, "a")
    assert {each.member_id for each in consumers(shard).members} == {member_id, "a"}


async def test_an_assignment_that_gives_a_partition_twice_has_one_owner_afterwards(
    place: Place,
) -> None:
    shard = await place.lead()
    first = await classic_alone(shard)
    second = asyncio.create_task(shard.join("g", joining(protocols=protocols())))
    await pass_time(0.1)
    await classic_join(shard, first)
    other = (await second).member_id
    waits = asyncio.create_task(classic_sync(shard, other, 2))
    await classic_sync(shard, first, 2, {first: {0, 1, 2, 3, 9}, other: {0, 1}})
    await waits
    await beat(shard, "a")
    owners = [set(each.current.partitions()) for each in consumers(shard).members]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 4


async def test_the_policy_says_which_way_groups_may_change(place: Place) -> None:
    shard = await place.lead()
    member_id = await classic_alone(shard)
    for policy in (MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE):
        set_policy(shard, policy)
        assert policy.value in (await refusal(shard, "a")).message
    set_policy(shard, MigrationPolicy.UPGRADE)
    await beat(shard, "a")
    set_policy(shard, MigrationPolicy.DISABLED)
    refused = await shard.join("g", joining(protocols=protocols()))
    assert refused.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    set_policy(shard, MigrationPolicy.UPGRADE)
    await leave(shard, "a")
    assert len(consumers(shard).members) == 1, f"{member_id} stays in a consumer group"
    assert consumer_parts(place.topics).migration_policy is MigrationPolicy.BIDIRECTIONAL


# -- members of the classic protocol ---------------------------------------------------------------


async def mixed(shard: GroupShard) -> tuple[str, int]:
    """A group of one classic member and the member "a"; the classic one is up to date."""
    member_id = await classic_alone(shard)
    await beat(shard, "a")
    _, generation = await classic_join(shard, member_id)
    await classic_sync(shard, member_id, generation)
    await beat(shard, "a", 2, set())
    return member_id, generation


async def test_members_are_told_that_they_are_in_another_generation(place: Place) -> None:
    shard = await place.lead()
    member_id, generation = await mixed(shard)
    wrong = generation + 1
    assert shard.heartbeat("g", member_id, None, wrong) == errors_pb2.ILLEGAL_GENERATION
    assert (await classic_sync(shard, member_id, wrong)).error_code == errors_pb2.ILLEGAL_GENERATION
    assert shard.heartbeat("g", "a", None, 2) == errors_pb2.UNKNOWN_MEMBER_ID
    commits = {TP: COMMIT}
    illegal = errors_pb2.ILLEGAL_GENERATION
    assert await shard.commit("g", member_id, None, wrong, commits) == illegal
    assert await shard.commit("g", member_id, None, generation, commits) == 0
    assert shard.check_fetch("g", member_id, wrong) == illegal


async def test_a_member_needs_an_id_first_and_a_protocol_of_the_others(place: Place) -> None:
    shard = await place.lead()
    await mixed(shard)
    asked = joining(protocols=protocols(), needs_known_id=True)
    told = await shard.join("g", asked)
    assert told.error_code == errors_pb2.MEMBER_ID_REQUIRED
    assert told.member_id == asked.new_member_id
    assert len(consumers(shard).members) == 2
    other = await shard.join("g", joining(protocols=protocols("sticky")))
    assert other.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    malformed = await shard.join("g", joining(protocols=(("range", b"\0"),)))
    assert malformed.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL


async def test_a_silent_member_is_removed_after_its_own_session_timeout(place: Place) -> None:
    shard = await place.lead()
    member_id, generation = await mixed(shard)
    for _ in range(3):
        await pass_time(9)
        assert shard.heartbeat("g", member_id, None, generation) == 0
    await pass_time(11)
    assert shard.heartbeat("g", member_id, None, generation) == errors_pb2.UNKNOWN_MEMBER_ID
    assert {each.member_id for each in consumers(shard).members} == {"a"}


async def test_a_member_that_does_not_join_again_in_time_is_removed(place: Place) -> None:
    shard = await place.lead()
    member_id = await classic_alone(shard, rebalance_timeout_ms=20_000)
    await beat(shard, "a")
    for _ in range(5):
        code = shard.heartbeat("g", member_id, None, 1)
        assert code == errors_pb2.REBALANCE_IN_PROGRESS
        await pass_time(4.5)
    assert shard.heartbeat("g", member_id, None, 1) == errors_pb2.UNKNOWN_MEMBER_ID


async def test_a_member_that_does_not_sync_in_time_is_removed(place: Place) -> None:
    shard = await place.lead()
    await mixed(shard)
    member_id, generation = await classic_join(shard, rebalance_timeout_ms=8_000)
    await pass_time(4)
    shard.heartbeat("g", member_id, None, generation)
    await pass_time(5)
    assert shard.heartbeat("g", member_id, None, generation) == errors_pb2.UNKNOWN_MEMBER_ID


async def test_a_static_member_comes_back_with_the_other_protocol(place: Place) -> None:
    shard = await place.lead()
    member_id, _ = await classic_join(shard, instance_id="i")
    request = SyncRequest(
        0, member_id, "i", 1, None, None, ((member_id, write_assignment(1, {TOPIC: ALL})),)
    )
    await shard.sync("g", request)
    answer = await beat(shard, "a", instance_id="i")
    assert has_of(answer) == ALL, "it gets what it had"
    assert shard.heartbeat("g", member_id, "i", 1) == errors_pb2.FENCED_INSTANCE_ID
    refused = await shard.join("g", joining(member_id, instance_id="i", protocols=protocols()))
    assert refused.error_code == errors_pb2.FENCED_INSTANCE_ID
    again, generation = await classic_join(shard, instance_id="i")
    assert classics(shard).members.leader_id == again
    answer_of_sync = await shard.sync(
        "g", request._replace(member_id=again, generation_id=generation, assignments=())
    )
    assert answer_of_sync.error_code == 0


# -- to the classic protocol -----------------------------------------------------------------------


async def test_the_last_member_of_the_consumer_protocol_leaves(place: Place) -> None:
    shard = await place.lead()
    member_id, generation = await mixed(shard)
    await leave(shard, "a")
    assert classics(shard).generation_id == generation
    assert shard.heartbeat("g", member_id, None, generation) == errors_pb2.REBALANCE_IN_PROGRESS
    _, generation = await classic_join(shard, member_id)
    assert generation == 3
    answer = await classic_sync(shard, member_id, generation, {member_id: set(ALL)})
    assert partitions(answer) == ALL
    after = await place.lead()
    assert classics(after).state is GroupState.STABLE
    assert after.heartbeat("g", member_id, None, generation) == 0


@pytest.mark.parametrize("how", ["silence", "administrator"])
async def test_the_last_member_of_the_consumer_protocol_is_removed(place: Place, how: str) -> None:
    shard = await place.lead()
    member_id, generation = await mixed(shard)
    if how == "administrator":
        assert shard.leave("g", [Leaver("a")]) == [0]
    else:
        for _ in range(12):
            await pass_time(4)
            shard.heartbeat("g", member_id, None, generation)
    assert {each.member_id for each in classics(shard).members} == {member_id}


async def test_the_next_coordinator_asks_members_to_join_again(place: Place) -> None:
    shard = await place.lead()
    member_id, generation = await mixed(shard)
    await leave(shard, "a")
    after = await place.lead()
    assert classics(after).state is GroupState.PREPARING_REBALANCE
    assert after.heartbeat("g", member_id, None, generation) == errors_pb2.REBALANCE_IN_PROGRESS


async def test_a_group_that_changes_back_at_once_has_the_same_owners(place: Place) -> None:
    shard = await place.lead()
    member_id, _ = await mixed(shard)
    found = consumers(shard).members.get(member_id)
    assert found is not None
    owned = {p for _, p in found.current.partitions()}
    await leave(shard, "a")
    assert has_of(await beat(shard, "b")) == ALL - owned
    found = consumers(shard).members.get(member_id)
    assert found is not None
    assert {p for _, p in found.current.partitions()} == owned


async def test_a_downgrade_that_was_not_written_is_made_up_for(place: Place) -> None:
    shard = await place.lead()
    member_id, _ = await mixed(shard)
    set_policy(shard, MigrationPolicy.UPGRADE)
    await leave(shard, "a")
    assert isinstance(shard.group("g"), ConsumerGroup)
    after = await place.lead()
    assert {each.member_id for each in classics(after).members} == {member_id}


async def test_what_the_log_refuses_of_a_downgrade_is_written_with_what_comes_next(
    place: Place,
) -> None:
    shard = await place.lead()
    member_id, _ = await mixed(shard)
    place.log.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        await leave(shard, "a")
    place.log.refusal = 0
    _, generation = await classic_join(shard, member_id)
    await classic_sync(shard, member_id, generation, {member_id: set(ALL)})
    assert classics(await place.lead()).generation_id == generation
