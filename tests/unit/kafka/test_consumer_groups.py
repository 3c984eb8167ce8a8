"""Groups of the consumer protocol (KIP-848) over the wire, in every version."""

import asyncio
from typing import Any

import immutables
import pytest

from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate_proto.v1 import errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import Values
from tests.unit.kafka.conftest import Ask

COMMIT, FETCH, DESCRIBE_CLASSIC, LIST, DELETE, FORGET = 8, 9, 15, 16, 42, 47
HEARTBEAT, DESCRIBE = 68, 69


@pytest.fixture(autouse=True)
async def _topics(inside: FakeBrokerInside) -> None:
    at_level(inside, 3)
    inside.metadata.add_topic("t", 2)
    inside.metadata.add_topic(OFFSETS_TOPIC, 3)
    while inside.services.groups.is_loading:
        await asyncio.sleep(0)


def at_level(inside: FakeBrokerInside, level: int) -> None:
    features = immutables.Map({"inter_broker_protocol": level})
    assert isinstance(inside.services.images, ShownImage)
    inside.services.images.show(Image(offset=MetadataOffset(77), features=features))


def heartbeat(epoch: int = 0, **others: Any) -> Values:  # noqa: ANN401
    joins = epoch == 0
    return {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000 if joins else -1,
        "subscribed_topic_names": ["t"] if joins else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [] if joins else None,
        **others,
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_members_join_heartbeat_and_leave(
    ask: Ask, inside: FakeBrokerInside, version: int
) -> None:
    joined = await ask(HEARTBEAT, version, heartbeat())
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    (assigned,) = joined.assignment.topic_partitions
    assert assigned.topic_id.bytes == inside.metadata.topics["t"].topic_id
    assert assigned.partitions == (0, 1)
    again = await ask(HEARTBEAT, version, heartbeat(1))
    assert (again.member_epoch, again.assignment) == (1, None)
    assert again.heartbeat_interval.total_seconds() == 5
    fenced = await ask(HEARTBEAT, version, heartbeat(2))
    assert fenced.error_code == errors_pb2.FENCED_MEMBER_EPOCH
    left = await ask(HEARTBEAT, version, heartbeat(-1))
    assert (left.error_code, left.member_epoch) == (0, -1)
    gone = await ask(HEARTBEAT, version, heartbeat(1))
    assert gone.error_code == errors_pb2.UNKNOWN_MEMBER_ID


async def test_old_members_are_given_an_id(ask: Ask) -> None:
    joined = await ask(HEARTBEAT, 0, heartbeat(member_id=""))
    assert joined.error_code == 0
    assert joined.member_id
    refused = await ask(HEARTBEAT, 1, heartbeat(member_id=""))
    assert refused.error_code == errors_pb2.INVALID_REQUEST


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group_id": ""}, errors_pb2.INVALID_REQUEST),
        ({"server_assignor": "mine"}, errors_pb2.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, errors_pb2.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_what_cannot_be_served_is_refused(ask: Ask, wrong: Values, code: int) -> None:
    refused = await ask(HEARTBEAT, 1, heartbeat(**wrong))
    assert refused.error_code == code
    assert refused.error_message
    listed = await ask(LIST, 5, {"states_filter": [], "types_filter": []})
    assert not listed.groups, "nothing is left of a member that was refused"


async def test_brokers_of_an_earlier_release_could_not_coordinate(
    ask: Ask, inside: FakeBrokerInside
) -> None:
    at_level(inside, 2)
    refused = await ask(HEARTBEAT, 1, heartbeat())
    assert refused.error_code == errors_pb2.UNSUPPORTED_VERSION
    assert "quorate features upgrade" in refused.error_message


@pytest.mark.parametrize("version", [0, 1])
async def test_groups_are_described(ask: Ask, version: int) -> None:
    await ask(HEARTBEAT, 1, heartbeat(rack_id="r"))
    values = {"group_ids": ["g", "nobody"], "include_authorized_operations": True}
    known, unknown = (await ask(DESCRIBE, version, values)).groups
    assert (known.group_state, known.assignor_name) == ("Stable", "uniform")
    assert (known.group_epoch, known.assignment_epoch) == (1, 1)
    (member,) = known.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("m", 1, "r")
    assert member.subscribed_topic_names == ("t",)
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", (0, 1))
    assert member.target_assignment == member.assignment
    assert unknown.error_code == errors_pb2.GROUP_ID_NOT_FOUND
    if version:
        assert member.member_type == 1


async def test_kip_1043_describe_groups_6_knows_no_consumer_group(ask: Ask) -> None:
    await ask(HEARTBEAT, 1, heartbeat())
    values = {"groups": ["g", "nobody"], "include_authorized_operations": False}
    for group in (await ask(DESCRIBE_CLASSIC, 6, values)).groups:
        assert group.error_code == errors_pb2.GROUP_ID_NOT_FOUND
        assert group.group_state == "Dead"
        assert group.group_id in group.error_message
    for group in (await ask(DESCRIBE_CLASSIC, 5, values)).groups:
        assert (group.error_code, group.group_state) == (0, "Dead")


async def test_groups_are_listed_with_their_type(ask: Ask) -> None:
    await ask(HEARTBEAT, 1, heartbeat())
    for types, found in (([], ["g"]), (["consumer"], ["g"]), (["classic"], [])):
        answer = await ask(LIST, 5, {"states_filter": [], "types_filter": types})
        assert [group.group_id for group in answer.groups] == found
        assert {group.group_type for group in answer.groups} <= {"consumer"}
        assert {group.group_state for group in answer.groups} <= {"Stable"}


def committing(epoch: int) -> Values:
    partition = {
        "partition_index": 0,
        "committed_offset": 41,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": epoch,
        "member_id": "m",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [partition]}],
    }


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (9, 1, errors_pb2.NONE),
        (9, 2, errors_pb2.STALE_MEMBER_EPOCH),
        (8, 1, errors_pb2.UNSUPPORTED_VERSION),
    ],
)
async def test_members_commit_in_their_epoch(ask: Ask, version: int, epoch: int, code: int) -> None:
    await ask(HEARTBEAT, 1, heartbeat())
    (topic,) = (await ask(COMMIT, version, committing(epoch))).topics
    assert [partition.error_code for partition in topic.partitions] == [code]


async def test_members_fetch_offsets_in_their_epoch(ask: Ask) -> None:
    await ask(HEARTBEAT, 1, heartbeat())
    await ask(COMMIT, 9, committing(1))

    async def fetch(member_id: str | None, epoch: int) -> Any:  # noqa: ANN401
        asked = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": None}
        values = {"groups": [asked], "require_stable": False}
        return (await ask(FETCH, 9, values)).groups[0]

    for found in (await fetch("m", 1), await fetch(None, -1)):
        (topic,) = found.topics
        assert topic.partitions[0].committed_offset == 41
    assert (await fetch("m", 2)).error_code == errors_pb2.STALE_MEMBER_EPOCH
    assert (await fetch("other", 1)).error_code == errors_pb2.UNKNOWN_MEMBER_ID


async def test_offsets_and_groups_are_deleted_once_nobody_needs_them(ask: Ask) -> None:
    await ask(HEARTBEAT, 1, heartbeat())
    await ask(COMMIT, 9, committing(1))
    forgetting = {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    }
    (topic,) = (await ask(FORGET, 0, forgetting)).topics
    assert topic.partitions[0].error_code == errors_pb2.GROUP_SUBSCRIBED_TO_TOPIC
    deleting = {"groups_names": ["g"]}
    (refused,) = (await ask(DELETE, 2, deleting)).results
    assert refused.error_code == errors_pb2.NON_EMPTY_GROUP
    await ask(HEARTBEAT, 1, heartbeat(-1))
    (topic,) = (await ask(FORGET, 0, forgetting)).topics
    assert topic.partitions[0].error_code == 0
    (deleted,) = (await ask(DELETE, 2, deleting)).results
    assert deleted.error_code == 0
    listed = await ask(LIST, 5, {"states_filter": [], "types_filter": []})
    assert not listed.groups
