"""The admin client against gRPC servers in this process: finding the controller, and outcomes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from google.protobuf.message import Message

from quorate.client.admin import AdminClient
from quorate.client.errors import ClusterUnreachable, RequestFailed, error_name
from quorate.client.results import (
    CreatePartitionsOptions,
    ElectionType,
    NewPartitions,
    NewTopic,
    PartitionName,
)
from quorate_proto.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    errors_pb2,
    metadata_pb2,
    replication_pb2,
    replication_pb2_grpc,
)

ELECTION = admin_pb2.ElectLeadersRequest


class FakeBroker(admin_pb2_grpc.AdminServicer, replication_pb2_grpc.RangeReadServicer):
    """Answers as broker ``broker_id`` of a cluster whose controller is in ``cluster``."""

    def __init__(self, broker_id: int, cluster: "FakeCluster") -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.port = 0
        self.created: list[str] = []
        self.asked: list[Message] = []

    def ClusterStatus(
        self, request: admin_pb2.ClusterStatusRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ClusterStatusResponse:
        return admin_pb2.ClusterStatusResponse(
            cluster_id="c",
            controller_id=self.cluster.controller_id,
            controller_epoch=4,
            quorum_leader=1,
            metadata_offset=9,
            brokers=[
                replication_pb2.BrokerEndpoint(
                    broker_id=broker.broker_id,
                    broker_epoch=7,
                    grpc=metadata_pb2.Endpoint(host="127.0.0.1", port=broker.port),
                    kafka=metadata_pb2.Endpoint(host="127.0.0.1", port=1),
                )
                for broker in self.cluster.brokers
            ],
            offline_partitions=[admin_pb2.PartitionRef(topic="t", partition=2)],
            alerts=[f"alert of {self.broker_id}"],
        )

    def CreateTopics(
        self, request: admin_pb2.CreateTopicsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.CreateTopicsResponse:
        if self.broker_id != self.cluster.controller_id:
            return admin_pb2.CreateTopicsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        self.created += [topic.name for topic in request.topics]
        return admin_pb2.CreateTopicsResponse(
            topics=[
                admin_pb2.TopicResult(
                    name=topic.name,
                    error_code=errors_pb2.INVALID_TOPIC_EXCEPTION if "/" in topic.name else 0,
                    error_message=f"topic name {topic.name!r}" if "/" in topic.name else "",
                )
                for topic in request.topics
            ]
        )

    def CreatePartitions(
        self, request: admin_pb2.CreatePartitionsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.CreatePartitionsResponse:
        if self.broker_id != self.cluster.controller_id:
            return admin_pb2.CreatePartitionsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        self.asked.append(request)
        return admin_pb2.CreatePartitionsResponse(
            topics=[
                admin_pb2.TopicResult(name=topic.name, num_partitions=topic.count)
                for topic in request.topics
            ]
        )

    def RemovePartitions(
        self, request: admin_pb2.RemovePartitionsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.RemovePartitionsResponse:
        self.asked.append(request)
        return admin_pb2.RemovePartitionsResponse(
            topics=[admin_pb2.TopicResult(name=topic.topic) for topic in request.topics]
        )

    def ElectLeaders(
        self, request: admin_pb2.ElectLeadersRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ElectLeadersResponse:
        self.asked.append(request)
        code = errors_pb2.ELECTION_NOT_NEEDED
        return admin_pb2.ElectLeadersResponse(
            partitions=[
                admin_pb2.PartitionResult(topic=topic.topic, partition=number, error_code=code)
                for topic in request.topics
                for number in topic.partitions
            ]
        )

    def DescribeTopics(
        self, request: replication_pb2.DescribeTopicsRequest, context: grpc.ServicerContext
    ) -> replication_pb2.DescribeTopicsResponse:
        unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        return replication_pb2.DescribeTopicsResponse(
            topics=[
                replication_pb2.TopicDescription(topic=name, error_code=unknown)
                for name in request.topics
            ]
            or [replication_pb2.TopicDescription(topic=name) for name in ("b", "a")]
        )


class FakeCluster:
    def __init__(self, brokers: int, controller_id: int) -> None:
        self.controller_id = controller_id
        self.brokers = [
            FakeBroker(broker_id, self)  # type: ignore[abstract]  # gRPC refuses the rest
            for broker_id in range(1, brokers + 1)
        ]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{broker.port}" for broker in self.brokers]


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[FakeCluster]:
    with ExitStack() as stack:
        for broker in cluster.brokers:
            server = grpc.server(stack.enter_context(ThreadPoolExecutor(2)))
            admin_pb2_grpc.add_AdminServicer_to_server(broker, server)
            replication_pb2_grpc.add_RangeReadServicer_to_server(broker, server)
            broker.port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            stack.callback(_stop, server)
        yield cluster


def _stop(server: grpc.Server) -> None:
    server.stop(None).wait()


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
