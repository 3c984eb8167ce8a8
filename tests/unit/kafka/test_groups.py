"""Consumer groups over the wire: every version that clients may choose."""

import asyncio
from typing import Any

import pytest

from quorate.broker.config.internal_topics import OFFSETS_TOPIC, partition_of
from quorate.broker.coordinator.shards.coordinator_records import TransactionEnd
from quorate.common.types import BrokerId, Endpoint
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBroker, FakeBrokerInside, FakePartition, FakeTopic
from tests.support.kafka_wire import Values
from tests.support.waiting import async_let_time_pass
from tests.unit.kafka.conftest import Ask

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, COMMIT_IN_TRANSACTION, DELETE, FORGET = 15, 16, 28, 42, 47
SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


@pytest.fixture(autouse=True)
async def _topics(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 2)
    inside.metadata.add_topic(OFFSETS_TOPIC, 3)
    while inside.services.groups.is_loading:
        await asyncio.sleep(0)


def joining(member_id: str = "", *, protocol_type: str = "consumer") -> Values:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 1,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": SUBSCRIBED_TO_T}],
        "reason": None,
    }


def member(member_id: str, generation_id: int = 1, **more: Any) -> Values:  # noqa: ANN401
    return {
        "group_id": "g",
        "generation_id": generation_id,
        "member_id": member_id,
        "group_instance_id": None,
        **more,
    }


def syncing(member_id: str) -> Values:
    assignments = [{"member_id": member_id, "assignment": b"all"}]
    return member(
        member_id, protocol_type="consumer", protocol_name="range", assignments=assignments
    )


def committing(offset: int, *, member_id: str = "", generation_id: int = -1) -> Values:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 2,
            "committed_metadata": "note",
        }
        for index in (0, 9)
    ]
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": generation_id,
        "member_id": member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": "t", "partitions": partitions}],
    }


async def join_alone(ask: Ask, version: int = 9) -> str:
    answer = await ask(JOIN, version, joining())
    if version >= 4:
        assert answer.error_code == errors_pb2.MEMBER_ID_REQUIRED
        answer = await ask(JOIN, version, joining(answer.member_id))
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.leader == answer.member_id
    assert [each.metadata for each in answer.members] == [SUBSCRIBED_TO_T]
    assert answer.protocol_name == "range"
    return str(answer.member_id)


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_and_leaves_in_every_version(ask: Ask, version: int) -> None:
    member_id = await join_alone(ask, version)
    synced = await ask(SYNC, min(version, 5), syncing(member_id))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    beat = await ask(HEARTBEAT, min(version, 4), member(member_id))
    assert beat.error_code == 0
    leaving = {
        "group_id": "g",
        "member_id": member_id,
        "members": [{"member_id": member_id, "group_instance_id": None, "reason": None}],
    }
    left = await ask(LEAVE, min(version, 5), leaving)
    assert left.error_code == 0
    if version >= 3:
        assert [each.error_code for each in left.members] == [0]
    beat = await ask(HEARTBEAT, min(version, 4), member(member_id))
    assert beat.error_code == errors_pb2.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_and_fetched_in_every_version(ask: Ask, version: int) -> None:
    (topic,) = (await ask(COMMIT, version, committing(41))).topics
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in topic.partitions] == [0, unknown]

    asked = [{"name": "t", "partition_indexes": [0, 1]}]
    values = {"group_id": "g", "topics": asked, "require_stable": False}
    values["groups"] = [{"group_id": "g", "topics": asked}]
    answer = await ask(FETCH, version, values)
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert [(each.committed_offset, each.metadata) for each in topic.partitions] == [
        (41, "note"),
        (-1, ""),
    ]


def sending(offset: int, **more: Any) -> Values:  # noqa: ANN401
    """Return a request with offsets for a transaction of producer 7."""
    whose = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0, "generation_id": -1}
    return {**committing(offset), **whose, **more}


async def fetched(ask: Ask, *, stable: bool, version: int = 8) -> list[tuple[int, int]]:
    """Return the offset and the error code of partition 0 of t."""
    asked = [{"name": "t", "partition_indexes": [0]}]
    values = {"group_id": "g", "topics": asked, "require_stable": stable}
    answer = await ask(FETCH, version, {**values, "groups": [{"group_id": "g", "topics": asked}]})
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    return [(each.committed_offset, each.error_code) for each in topic.partitions]


@pytest.mark.parametrize("version", range(4))
async def test_offsets_of_a_transaction_show_when_it_is_committed(
    ask: Ask, inside: FakeBrokerInside, version: int
) -> None:
    await ask(COMMIT, 8, committing(41))
    (topic,) = (await ask(COMMIT_IN_TRANSACTION, version, sending(42))).topics
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in topic.partitions] == [0, unknown]
    for fetch_version in (7, 8):
        unstable = [(-1, errors_pb2.UNSTABLE_OFFSET_COMMIT)]
        assert await fetched(ask, stable=True, version=fetch_version) == unstable
        assert await fetched(ask, stable=False, version=fetch_version) == [(41, 0)]
    end = TransactionEnd(place=99, producer_id=7, committed=True)
    inside.services.groups.end_transaction(partition_of("g", 3), end)
    assert await fetched(ask, stable=True) == [(42, 0)]


async def test_kip_447_a_producer_of_an_old_generation_commits_nothing(ask: Ask) -> None:
    member_id = await join_alone(ask)
    await ask(SYNC, 5, syncing(member_id))
    values = sending(42, member_id=member_id, generation_id=0)
    (topic,) = (await ask(COMMIT_IN_TRANSACTION, 3, values)).topics
    assert topic.partitions[0].error_code == errors_pb2.ILLEGAL_GENERATION
    assert await fetched(ask, stable=True) == [(-1, 0)]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, errors_pb2.COORDINATOR_NOT_AVAILABLE),
        (2, errors_pb2.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_old_producers_are_not_told_that_a_log_is_being_read(
    ask: Ask, inside: FakeBrokerInside, version: int, code: int
) -> None:
    groups = inside.services.groups
    groups.shard_of("g").is_loading = True
    (topic,) = (await ask(COMMIT_IN_TRANSACTION, version, sending(42))).topics
    assert topic.partitions[0].error_code == code


@pytest.mark.parametrize(("left", "offset"), [(0, -1), (1, 41)])
async def test_offsets_go_with_their_partition(
    ask: Ask, inside: FakeBrokerInside, left: int, offset: int
) -> None:
    await ask(COMMIT, 8, committing(41))
    inside.services.groups.partitions_gone({"t": left, "u": 0})
    await async_let_time_pass(0.1, "offsets of what is gone go meanwhile")
    assert await fetched(ask, stable=True) == [(offset, 0)]


async def test_offsets_of_a_topic_that_went_unnoticed_go_at_the_second_look(
    ask: Ask, inside: FakeBrokerInside
) -> None:
    """A broker that does not know a topic yet must not treat it as deleted."""
    await ask(COMMIT, 8, committing(41))
    topic = inside.metadata.topics.pop("t")
    await inside.services.groups.expire_offsets()
    assert await fetched(ask, stable=True) == [(41, 0)]
    inside.metadata.topics["t"] = topic
    await inside.services.groups.expire_offsets()
    del inside.metadata.topics["t"]
    await inside.services.groups.expire_offsets()
    assert await fetched(ask, stable=True) == [(41, 0)], "missing twice, and not at a stretch"
    await inside.services.groups.expire_offsets()
    assert await fetched(ask, stable=True) == [(-1, 0)]
    (refused,) = (await ask(COMMIT, 8, committing(42))).topics
    assert refused.partitions[0].error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_all_offsets_of_a_group_are_told_to_who_names_no_topic(ask: Ask) -> None:
    await ask(COMMIT, 8, committing(41))
    answer = await ask(FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]})
    (topic,) = answer.groups[0].topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 41)]
    answer = await ask(FETCH, 7, {"group_id": "other", "topics": None, "require_stable": True})
    assert (answer.error_code, answer.topics) == (0, ())


async def test_notes_that_are_too_long_are_refused(ask: Ask) -> None:
    values = committing(41)
    values["topics"][0]["partitions"][0]["committed_metadata"] = "x" * 4097
    (topic,) = (await ask(COMMIT, 8, values)).topics
    assert topic.partitions[0].error_code == errors_pb2.OFFSET_METADATA_TOO_LARGE


async def test_commits_of_another_generation_are_refused(ask: Ask) -> None:
    member_id = await join_alone(ask)
    await ask(SYNC, 5, syncing(member_id))
    values = committing(41, member_id=member_id, generation_id=2)
    (topic,) = (await ask(COMMIT, 8, values)).topics
    assert topic.partitions[0].error_code == errors_pb2.ILLEGAL_GENERATION
    (topic,) = (await ask(COMMIT, 8, committing(41))).topics
    assert topic.partitions[0].error_code == errors_pb2.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_described_in_every_version(ask: Ask, version: int) -> None:
    member_id = await join_alone(ask)
    await ask(SYNC, 5, syncing(member_id))
    values = {"groups": ["g", "nobody"], "include_authorized_operations": True}
    known, unknown = (await ask(DESCRIBE, version, values)).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (described,) = known.members
    assert (described.member_id, described.client_id, described.client_host) == (
        member_id,
        "test",
        "/10.0.0.9",
    )
    assert (described.member_metadata, described.member_assignment) == (SUBSCRIBED_TO_T, b"all")
    assert (unknown.error_code, unknown.group_state) == (0, "Dead")


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(ask: Ask, version: int) -> None:
    await ask(COMMIT, 8, committing(41))
    values: Values = {"states_filter": ["empty"], "types_filter": ["classic"]}
    answer = await ask(LIST, version, values)
    assert [each.group_id for each in answer.groups] == ["g"]
    if version >= 4:
        assert [each.group_state for each in answer.groups] == ["Empty"]
        assert not (await ask(LIST, version, {**values, "states_filter": ["Stable"]})).groups
    if version >= 5:
        assert not (await ask(LIST, version, {**values, "types_filter": ["consumer"]})).groups


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_once_they_are_empty(ask: Ask, version: int) -> None:
    member_id = await join_alone(ask)
    await ask(SYNC, 5, syncing(member_id))
    values = {"groups_names": ["g", "nobody"]}
    codes = {r.group_id: r.error_code for r in (await ask(DELETE, version, values)).results}
    assert codes == {"g": errors_pb2.NON_EMPTY_GROUP, "nobody": errors_pb2.GROUP_ID_NOT_FOUND}
    await ask(LEAVE, 2, {"group_id": "g", "member_id": member_id})
    codes = {r.group_id: r.error_code for r in (await ask(DELETE, version, values)).results}
    assert codes["g"] == 0
    assert not (await ask(LIST, 4, {"states_filter": []})).groups


async def test_kip_496_offsets_are_deleted_unless_a_member_consumes_the_topic(ask: Ask) -> None:
    await ask(COMMIT, 8, committing(41))
    member_id = await join_alone(ask)
    await ask(SYNC, 5, syncing(member_id))
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    (topic,) = (await ask(FORGET, 0, values)).topics
    assert [p.error_code for p in topic.partitions] == [errors_pb2.GROUP_SUBSCRIBED_TO_TOPIC]
    await ask(LEAVE, 2, {"group_id": "g", "member_id": member_id})
    (topic,) = (await ask(FORGET, 0, values)).topics
    assert [p.error_code for p in topic.partitions] == [0]
    answer = await ask(FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]})
    assert not answer.groups[0].topics


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group_id": ""}, errors_pb2.INVALID_GROUP_ID),
        ({"session_timeout": 5_999}, errors_pb2.INVALID_SESSION_TIMEOUT),
        ({"session_timeout": 1_800_001}, errors_pb2.INVALID_SESSION_TIMEOUT),
        ({"member_id": "unknown"}, errors_pb2.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, errors_pb2.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, errors_pb2.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_who_may_not_join_is_told_why(ask: Ask, changed: Values, code: int) -> None:
    answer = await ask(JOIN, 9, {**joining(), **changed})
    assert answer.error_code == code


async def test_groups_of_other_coordinators_are_sent_there(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    partition = partition_of("g", 3)
    other = BrokerId(2)
    inside.metadata.brokers[other] = FakeBroker(Endpoint("other", 9), Endpoint("other", 10))
    topic = inside.metadata.topics[OFFSETS_TOPIC]
    partitions = list(topic.partitions)
    partitions[partition] = FakePartition(leader=other)
    inside.metadata.topics[OFFSETS_TOPIC] = FakeTopic(topic.topic_id, tuple(partitions))
    inside.metadata.changed()
    inside.services.groups.resign(partition)

    found = await ask(FIND, 3, {"key": "g", "key_type": 0})
    assert (found.node_id, found.host, found.port) == (2, "other", 9)
    not_here = errors_pb2.NOT_COORDINATOR
    assert (await ask(JOIN, 9, joining())).error_code == not_here
    assert (await ask(SYNC, 5, syncing("m"))).error_code == not_here
    assert (await ask(HEARTBEAT, 4, member("m"))).error_code == not_here
    assert (await ask(LEAVE, 2, {"group_id": "g", "member_id": "m"})).error_code == not_here
    (topic_answer,) = (await ask(COMMIT, 8, committing(1))).topics
    assert {each.error_code for each in topic_answer.partitions} == {not_here}
    answer = await ask(FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]})
    assert answer.groups[0].error_code == not_here
    (described,) = (
        await ask(DESCRIBE, 5, {"groups": ["g"], "include_authorized_operations": False})
    ).groups
    assert described.error_code == not_here
    (deleted,) = (await ask(DELETE, 2, {"groups_names": ["g"]})).results
    assert deleted.error_code == not_here


@pytest.mark.parametrize(
    ("name", "partition"),
    [("", 0), ("g", 3), ("console-consumer-12345", 6), ("grüße", 23), ("😀", 49)],
)
def test_a_group_belongs_to_the_partition_that_kafka_says(name: str, partition: int) -> None:
    assert partition_of(name, 50) == partition
