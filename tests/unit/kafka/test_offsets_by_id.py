"""OffsetCommit and OffsetFetch from version 9 on: unknown groups, and topics by id (KIP-848)."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.acl_types import AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2
from tests.support.acls import acl, log_with
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import Values
from tests.unit.kafka.conftest import Ask

COMMIT, FETCH = 8, 9
BY_ID = 10
NOBODY, NOBODY_ELSE = UUID(int=1), UUID(int=2)
UNKNOWN_ID = errors_pb2.UNKNOWN_TOPIC_ID


async def with_topics(inside: FakeBrokerInside) -> FakeBrokerInside:
    inside.metadata.add_topic("t", 400)
    inside.metadata.add_topic("u")
    inside.metadata.add_topic(OFFSETS_TOPIC, 3)
    while inside.services.groups.is_loading:
        await asyncio.sleep(0)
    return inside


@pytest.fixture(autouse=True)
async def _topics(inside: FakeBrokerInside) -> None:
    await with_topics(inside)


def topic_id(inside: FakeBrokerInside, name: str) -> UUID:
    return UUID(bytes=inside.metadata.topics[name].topic_id)


def committing(*topics: tuple[UUID | str, int], generation_id: int = -1) -> Values:
    """Commit offset 41 in so many partitions of each topic."""
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": generation_id,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                ("name" if isinstance(topic, str) else "topic_id"): topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": 41,
                        "committed_leader_epoch": 0,
                        "committed_metadata": "",
                    }
                    for number in range(count)
                ],
            }
            for topic, count in topics
        ],
    }


def fetching(*ids: UUID) -> Values:
    topics = [{"topic_id": one, "partition_indexes": [0, 1]} for one in ids] if ids else None
    group = {"group_id": "g", "member_id": "m", "member_epoch": 7, "topics": topics}
    return {"groups": [group], "require_stable": False}


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, errors_pb2.ILLEGAL_GENERATION), (9, errors_pb2.GROUP_ID_NOT_FOUND)],
)
async def test_a_member_of_a_group_that_does_not_exist_is_told_so(
    ask: Ask, version: int, code: int
) -> None:
    (topic,) = (await ask(COMMIT, version, committing(("t", 1), generation_id=3))).topics
    assert topic.partitions[0].error_code == code
    assert not (await ask(COMMIT, version, committing(("t", 1)))).topics[0].partitions[0].error_code
    (topic,) = (await ask(COMMIT, version, committing(("t", 1), generation_id=3))).topics
    assert topic.partitions[0].error_code != errors_pb2.GROUP_ID_NOT_FOUND


async def test_offsets_are_committed_and_fetched_by_ids(inside: FakeBrokerInside, ask: Ask) -> None:
    here = topic_id(inside, "u")
    committed = await ask(COMMIT, BY_ID, committing((here, 2), (NOBODY, 1)))
    codes = {one.topic_id: [each.error_code for each in one.partitions] for one in committed.topics}
    assert codes == {here: [0, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION], NOBODY: [UNKNOWN_ID]}
    (group,) = (await ask(FETCH, BY_ID, fetching(here, NOBODY))).groups
    assert group.error_code == 0
    found = {
        topic.topic_id: [(one.committed_offset, one.error_code) for one in topic.partitions]
        for topic in group.topics
    }
    assert found == {here: [(41, 0), (-1, 0)], NOBODY: [(-1, UNKNOWN_ID), (-1, UNKNOWN_ID)]}


async def test_all_offsets_come_with_the_ids_of_their_topics(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    here, there = topic_id(inside, "t"), topic_id(inside, "u")
    await ask(COMMIT, BY_ID, committing((here, 2), (there, 1)))
    del inside.metadata.topics["u"]
    (group,) = (await ask(FETCH, BY_ID, fetching())).groups
    assert [(topic.topic_id, len(topic.partitions)) for topic in group.topics] == [(here, 2)]


async def test_offsets_of_a_topic_before_are_not_those_of_its_successor(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    before = topic_id(inside, "u")
    inside.metadata.add_topic("u")
    (topic,) = (await ask(COMMIT, BY_ID, committing((before, 1)))).topics
    assert [one.error_code for one in topic.partitions] == [UNKNOWN_ID]
    (group,) = (await ask(FETCH, BY_ID, fetching(topic_id(inside, "u")))).groups
    assert [one.committed_offset for one in group.topics[0].partitions] == [-1, -1]


async def test_a_large_commit_is_answered_by_ids(inside: FakeBrokerInside, ask: Ask) -> None:
    here = topic_id(inside, "t")
    counts = {here: 400, NOBODY: 300, NOBODY_ELSE: 300}
    committed = await ask(COMMIT, BY_ID, committing(*counts.items()))
    told = [(one.topic_id, len(one.partitions)) for one in committed.topics]
    assert {id_: sum(n for one, n in told if one == id_) for id_ in counts} == counts
    codes = {one.topic_id: {each.error_code for each in one.partitions} for one in committed.topics}
    assert codes == {here: {0}, NOBODY: {UNKNOWN_ID}, NOBODY_ELSE: {UNKNOWN_ID}}


class TestWithoutRights:
    """The client of these tests may use the group, and no topic."""

    @pytest.fixture
    async def inside(self, tmp_path: Path) -> FakeBrokerInside:
        acls = log_with(acl(str(ANONYMOUS), AclOperation.READ, ResourceType.GROUP, "g"))
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
        return await with_topics(fake_broker(tmp_path, image=lambda: acls.image, **settings))

    async def test_f5_the_id_of_a_topic_gives_no_right_to_it(
        self, inside: FakeBrokerInside, ask: Ask
    ) -> None:
        denied = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        here = topic_id(inside, "u")
        committed = await ask(COMMIT, BY_ID, committing((here, 1), (NOBODY, 1)))
        assert [one.partitions[0].error_code for one in committed.topics] == [denied, UNKNOWN_ID]
        (group,) = (await ask(FETCH, BY_ID, fetching(here, NOBODY))).groups
        assert [one.partitions[0].error_code for one in group.topics] == [denied, UNKNOWN_ID]
