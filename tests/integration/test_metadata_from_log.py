"""Brokers of a real cluster take metadata from the metadata log, at inter_broker_protocol 3.

Broker 4 is the test's own: it keeps what the controller sends, byte for byte, and follows no log.
"""

from collections.abc import Iterator

import grpc
import pytest

from quorate.client.grpc_channels import BrokerStubs
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import replication_pb2
from tests.support.waiting import wait_until
from tests.support.witnesses import Stage, Witness, witnesses

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 60
CONSTANT_BYTES = 64
LEVEL = "inter_broker_protocol"


@pytest.fixture(scope="module")
def stage(module_quorate_cluster: ClusterFactory) -> Iterator[Stage]:
    """Three brokers whose sessions are short, and a witness."""
    cluster = module_quorate_cluster(
        brokers=3,
        config={"security.protocol": "PLAINTEXT", "broker.session.timeout.ms": 2_000},
    )
    with witnesses(cluster, (4,)) as stage:
        wait_until(lambda: len(cluster.status().brokers) == 4, "four brokers")
        yield stage


def bodies(witness: Witness, kind: str, since: int) -> list[bytes]:
    return [
        one.body
        for one in witness.received[since:]
        if one.kind == kind and getattr(one.request, "from_log", False)
    ]


def leaders_at(cluster: RunningCluster, broker_id: int, topic: str) -> dict[int, int]:
    """What one broker tells clients."""
    stubs = BrokerStubs(cluster.broker_grpc_address(broker_id))
    asked = replication_pb2.DescribeTopicsRequest(topics=[topic])
    (described,) = stubs.range_read.DescribeTopics(asked, timeout=10).topics
    stubs.close()
    return {one.partition: one.leader for one in described.partitions}


def is_told(cluster: RunningCluster, broker_id: int) -> bool:
    try:
        leaders_at(cluster, broker_id, "moved")
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


def test_b5_a_new_controller_sends_two_small_requests_that_are_the_same_for_all(
    stage: Stage,
) -> None:
    (fourth,) = stage.witnesses
    cluster = stage.cluster
    with cluster.admin() as admin:
        wide = NewTopic(name="wide", assignments=[(1, 2, 3)] * PARTITIONS)
        admin.create_topics([wide])[0].raise_for_error()
        before, since = cluster.status(), len(fourth.received)
        successor = next(one for one in (1, 2, 3) if one != before.controller_id)
        admin.move_controller(successor)
        wait_until(lambda: bodies(fourth, "LeaderAndIsr", since), "an INIT")
        wait_until(lambda: bodies(fourth, "UpdateMetadata", since), "the offset of the metadata")
        for kind in ("LeaderAndIsr", "UpdateMetadata"):
            for body in bodies(fourth, kind, since):
                assert len(body) <= CONSTANT_BYTES
    wait_until(lambda: cluster.controller_id() == successor, "the next controller")
    with cluster.admin() as admin:
        later = NewTopic(name="later", assignments=[(3, 1), (2, 3), (1, 2)])
        admin.create_topics([later])[0].raise_for_error()
    for broker_id in (1, 2, 3):
        assert leaders_at(cluster, broker_id, "later") == {0: 3, 1: 2, 2: 1}, "read after write"


def test_b5_e6_brokers_show_a_failover_and_a_level_that_goes_down_and_up(
    quorate_cluster: ClusterFactory,
) -> None:
    """A killed leader, then both changes of the level, while topics are made."""
    cluster = quorate_cluster(brokers=3, config={"broker.session.timeout.ms": 2_000})
    with cluster.admin() as admin:
        moved = NewTopic(name="moved", assignments=[(3, 1, 2)] * 4)
        admin.create_topics([moved])[0].raise_for_error()
        cluster.kill_broker(3)
        for broker_id in (1, 2):
            wait_until(
                lambda at=broker_id: leaders_at(cluster, at, "moved") == dict.fromkeys(range(4), 1),  # type: ignore[misc]
                "the new leaders",
            )
        cluster.restart_broker(3)
        wait_until(lambda: is_told(cluster, 3), "the broker that is back to be told of the cluster")
        for level in (2, 3):
            allow = level == 2
            (changed,) = admin.update_features({LEVEL: level}, allow_downgrade=allow)
            changed.raise_for_error()
            name = f"at-level-{level}"
            new = NewTopic(name=name, assignments=[(1, 2, 3)])
            admin.create_topics([new])[0].raise_for_error()
            for broker_id in (1, 2, 3):
                assert leaders_at(cluster, broker_id, name) == {0: 1}
