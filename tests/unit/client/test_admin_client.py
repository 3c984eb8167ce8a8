"""The admin client against gRPC servers in this process: finding the controller, and outcomes."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from quorate.client.admin import AdminClient, AsyncAdminClient
from quorate.client.errors import ClusterUnreachable, RequestFailed, error_name
from quorate.client.results import (
    CreatePartitionsOptions,
    ElectionType,
    NewPartitions,
    NewTopic,
    PartitionName,
)
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.admin_cluster import FakeBroker, FakeCluster, serving

ELECTION = admin_pb2.ElectLeadersRequest


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(brokers=2, controller_id=2)) as running:
        yield running


def test_writes_go_to_the_controller_whoever_is_asked_first(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses[:1]) as admin:
        (result,) = admin.create_topics([NewTopic(name="events")])
    assert result.ok
    assert [broker.created for broker in cluster.brokers] == [[], ["events"]]


def test_f2_not_controller_makes_the_client_look_again(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        admin.create_topics([NewTopic(name="before")])
        cluster.controller_id = 1
        admin.create_topics([NewTopic(name="after")])
    assert [broker.created for broker in cluster.brokers] == [["after"], ["before"]]


def test_one_topics_failure_is_a_value(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        good, bad = admin.create_topics([NewTopic(name="good"), NewTopic(name="ba/d")])
    assert good.raise_for_error() is good
    assert bad.error == "INVALID_TOPIC_EXCEPTION"
    with pytest.raises(RequestFailed, match="INVALID_TOPIC_EXCEPTION: topic name 'ba/d'"):
        bad.raise_for_error()


def test_c14_partitions_are_added_and_removed_at_the_controller(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        (added,) = admin.create_partitions(
            [NewPartitions(name="a", count=3, assignments=[(1, 2)])],
            CreatePartitionsOptions(validate_only=True),
        )
        removed = admin.remove_partitions(
            [PartitionName(topic="a", partition=2), PartitionName(topic="b", partition=4)]
        )
    assert (added.ok, added.num_partitions) == (True, 3)
    assert [one.name for one in removed] == ["a", "b"]
    addition, removal = cluster.brokers[1].asked
    assert isinstance(addition, admin_pb2.CreatePartitionsRequest)
    assert addition.validate_only
    assert [list(one.broker_ids) for one in addition.topics[0].assignments] == [[1, 2]]
    assert isinstance(removal, admin_pb2.RemovePartitionsRequest)
    assert [(one.topic, list(one.partitions)) for one in removal.topics] == [("a", [2]), ("b", [4])]


def test_c2_elections_name_partitions_or_all_of_them(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        (result,) = admin.elect_leaders(
            ElectionType.UNCLEAN, [PartitionName(topic="a", partition=2)]
        )
        assert admin.elect_leaders(ElectionType.PREFERRED) == []
        assert admin.elect_leaders(ElectionType.PREFERRED, []) == []
    assert (result.topic, result.partition, result.error) == ("a", 2, "ELECTION_NOT_NEEDED")
    asked = [one for one in cluster.brokers[1].asked if isinstance(one, ELECTION)]
    assert [(one.election_type, one.all_partitions) for one in asked] == [
        (admin_pb2.ELECTION_UNCLEAN, False),
        (admin_pb2.ELECTION_PREFERRED, True),
        (admin_pb2.ELECTION_PREFERRED, False),
    ]


def test_status_is_typed(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        status = admin.cluster_status()
    assert (status.controller_id, status.controller_epoch) == (2, 4)
    assert [(broker.id, broker.epoch) for broker in status.brokers] == [(1, 7), (2, 7)]
    assert status.offline_partitions[0].partition == 2


def test_a_call_that_an_overloaded_server_cancels_is_made_again(cluster: FakeCluster) -> None:
    for broker in cluster.brokers:
        broker.cancels = 2
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.cluster_status().controller_id == 2
    assert [broker.cancels for broker in cluster.brokers] == [0, 0]


def test_a_controller_is_found_although_something_else_listens_where_a_broker_was(
    cluster: FakeCluster,
) -> None:
    stranger = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{stranger.add_insecure_port('127.0.0.1:0')}"
    stranger.start()
    try:
        with AdminClient(grpc_addresses=[address, *cluster.addresses]) as admin:
            (result,) = admin.create_topics([NewTopic(name="events")])
    finally:
        stranger.stop(None).wait()
    assert result.ok


def test_topics_are_listed_by_name_and_an_unknown_one_is_named(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.list_topics() == ["a", "b"]
        with pytest.raises(RequestFailed, match=r"UNKNOWN_TOPIC_OR_PARTITION: topic 'gone'"):
            admin.describe_topics(["gone"])


def test_no_live_controller_is_an_error_at_the_deadline(cluster: FakeCluster) -> None:
    cluster.controller_id = -1
    with (
        AdminClient(grpc_addresses=cluster.addresses, timeout_ms=1) as admin,
        pytest.raises(ClusterUnreachable, match="no reachable controller after 1 ms"),
    ):
        admin.create_topics([NewTopic(name="events")])


def test_exactly_one_way_in() -> None:
    with pytest.raises(ValueError, match="either"):
        AdminClient()
    with pytest.raises(ValueError, match="either"):
        AdminClient("h:1", grpc_addresses=["h:2"])


def test_an_error_code_from_the_future_is_still_shown() -> None:
    assert error_name(errors_pb2.NOT_CONTROLLER) == "NOT_CONTROLLER"
    assert error_name(31_999) == "error 31999"


def test_c18_alerts_are_those_of_all_brokers_and_who_is_silent_is_one(
    cluster: FakeCluster,
) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.cluster_alerts() == ["alert of 1", "alert of 2"]
        silent = FakeBroker(3, cluster)  # type: ignore[abstract]  # As in FakeCluster.
        silent.port = 1
        cluster.brokers.append(silent)
        assert admin.cluster_alerts() == [
            "alert of 1",
            "alert of 2",
            "broker 3 does not answer at 127.0.0.1:1",
        ]


# --- the same in an event loop ------------------------------------------------------------------


async def test_f2_the_asynchronous_client_looks_again_too(cluster: FakeCluster) -> None:
    async with AsyncAdminClient(grpc_addresses=cluster.addresses[:1]) as admin:
        (before,) = await admin.create_topics([NewTopic(name="before")])
        cluster.controller_id = 1
        (after,) = await admin.create_topics([NewTopic(name="after")])
    assert (before.ok, after.ok) == (True, True)
    assert [broker.created for broker in cluster.brokers] == [["after"], ["before"]]


async def test_asynchronous_calls_overlap(cluster: FakeCluster) -> None:
    names = [f"t{number}" for number in range(8)]
    async with AsyncAdminClient(grpc_addresses=cluster.addresses) as admin:
        created = await asyncio.gather(
            *(admin.create_topics([NewTopic(name=name)]) for name in names)
        )
        assert (await admin.list_topics(), await admin.cluster_alerts()) == (
            ["a", "b"],
            ["alert of 1", "alert of 2"],
        )
    assert [result.name for (result,) in created] == names
    assert sorted(cluster.brokers[1].created) == names


async def test_the_asynchronous_client_gives_up_at_its_deadline(cluster: FakeCluster) -> None:
    cluster.controller_id = -1
    async with AsyncAdminClient(grpc_addresses=cluster.addresses, timeout_ms=1) as admin:
        with pytest.raises(ClusterUnreachable, match="no reachable controller after 1 ms"):
            await admin.create_topics([NewTopic(name="events")])


async def test_a_refusal_as_a_whole_is_raised_with_its_reason(cluster: FakeCluster) -> None:
    async with AsyncAdminClient(grpc_addresses=cluster.addresses) as admin:
        with pytest.raises(RequestFailed, match="BROKER_NOT_AVAILABLE: broker 9 is not there"):
            await admin.move_controller(9)


def test_requests_say_who_asks_and_for_how_long(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses, timeout_ms=7_000, client_id="me") as admin:
        admin.elect_leaders(ElectionType.PREFERRED)
    (asked,) = cluster.brokers[1].asked
    assert isinstance(asked, ELECTION)
    context = asked.context
    assert (context.client_id, context.timeout_ms, context.forwarded_by, context.api_name) == (
        "me",
        7_000,
        -1,
        "ElectLeaders",
    )
