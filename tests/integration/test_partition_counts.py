"""Partitions added, removed and added again on a real cluster; elections that clients ask for."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions as MorePartitions

from quorate.client.results import (
    ElectionType,
    NewPartitions,
    NewTopic,
    PartitionInfo,
    PartitionName,
)
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.cli import quorate
from tests.support.kafka_clients import PATIENCE_S, Confluent
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    """Sessions outlive a broker that is stopped for a while: it can be assigned partitions."""
    return module_quorate_cluster(
        brokers=3,
        config={"broker.session.timeout.ms": 30_000, "auto.leader.rebalance.enable": False},
    )


@pytest.fixture
def confluent(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def kafka_python(cluster: RunningCluster) -> Iterator[Any]:
    import kafka  # Warns when it is loaded, which only a test may.

    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield admin
    admin.close()


def create(cluster: RunningCluster, name: str, *assignments: Sequence[int]) -> None:
    with cluster.admin() as admin:
        (result,) = admin.create_topics([NewTopic(name=name, assignments=assignments)])
    result.raise_for_error()
    wait_until_known(cluster, name, len(assignments))


def partitions(cluster: RunningCluster, name: str) -> Sequence[PartitionInfo]:
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics([name])
    return topic.partitions


def outcome(future: Any) -> str:  # noqa: ANN401 - a future of confluent-kafka's
    """The name of the error that it ends in."""
    try:
        future.result()
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].name())
    return "NONE"


def test_c14_scenario_9_confluent_kafka_adds_partitions_and_uses_them(
    cluster: RunningCluster, confluent: AdminClient
) -> None:
    create(cluster, "four", *[(1, 2, 3)] * 4)
    create(cluster, "grows", (1, 2, 3))
    wanted = [
        MorePartitions("four", 3),
        MorePartitions("none", 3),
        MorePartitions("grows", 3, [[3, 2, 1], [2, 1, 3]]),
    ]
    futures = confluent.create_partitions(wanted, request_timeout=PATIENCE_S)
    assert {name: outcome(future) for name, future in futures.items()} == {
        "four": "INVALID_PARTITIONS",
        "none": "UNKNOWN_TOPIC_OR_PART",
        "grows": "NONE",
    }
    wait_until_known(cluster, "grows", 3)
    checked = confluent.create_partitions([MorePartitions("four", 9)], validate_only=True)
    assert outcome(checked["four"]) == "NONE"
    assert [one.leader for one in partitions(cluster, "grows")] == [1, 3, 2]
    client = Confluent(cluster.bootstrap)
    sent = {number: [b"%d-%d" % (number, n) for n in range(20)] for number in range(3)}
    client.produce("grows", sent)
    assert client.consume("grows", dict.fromkeys(range(3), 20)) == sent


def test_c14_scenario_9_kafka_python_adds_partitions(
    cluster: RunningCluster,
    kafka_python: Any,  # noqa: ANN401 - untyped
) -> None:
    from kafka.errors import InvalidPartitionsError

    create(cluster, "python", (1, 2), (2, 3))
    kafka_python.create_partitions({"python": 4})
    wait_until_known(cluster, "python", 4)
    with pytest.raises(InvalidPartitionsError):
        kafka_python.create_partitions({"python": 2})


def test_c2_clients_elect_preferred_leaders(
    cluster: RunningCluster,
    kafka_python: Any,  # noqa: ANN401 - untyped
) -> None:
    """By kafka-python: confluent-kafka 2.16 cannot call its own elect_leaders."""
    create(cluster, "elected", *[(3, 1, 2)] * 3)
    cluster.stop_broker(3)
    cluster.restart_broker(3)
    wait_until_whole(cluster)
    assert 3 not in [one.leader for one in partitions(cluster, "elected")]
    kafka_python.elect_leaders(0, {"elected": [0, 1]})
    assert [one.leader == 3 for one in partitions(cluster, "elected")] == [True, True, False]
    again = kafka_python.elect_leaders(0, {"elected": [0, 7]}, raise_errors=False)
    (topic,) = again.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [
        errors_pb2.ELECTION_NOT_NEEDED,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    done = quorate(
        "elect-leaders",
        "--bootstrap-server",
        cluster.bootstrap,
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    )
    assert "elected-2" in done
    assert [one.leader for one in partitions(cluster, "elected")] == [3, 3, 3]


@pytest.fixture
def silent_broker_3(cluster: RunningCluster) -> Iterator[Callable[[], None]]:
    """Silences it, as one that is not the controller; running again afterwards, come what may."""
    with cluster.admin() as admin:
        admin.move_controller(1)
    wait_until(lambda: cluster.controller_id() == 1, "broker 1 in office")
    yield lambda: cluster.pause_broker(3)
    cluster.restart_broker(3)
    wait_until_whole(cluster)


@pytest.mark.slow
def test_c14_removed_and_added_again_while_a_replica_is_down_nothing_old_is_shown(
    cluster: RunningCluster, silent_broker_3: Callable[[], None]
) -> None:
    """Broker 3 is stopped, has the old records on disk, and is to lead the new partition.

    Its silence is waited for before the removal goes on without it.
    """
    create(cluster, "again", (1, 2), (3, 1))
    client = Confluent(cluster.bootstrap)
    client.produce("again", {1: [b"old %d" % n for n in range(50)]})
    silent_broker_3()
    with cluster.admin() as admin:
        removed = admin.remove_partitions([PartitionName(topic="again", partition=1)])
        assert removed[0].raise_for_error().num_partitions == 1
        assert len(partitions(cluster, "again")) == 1
        (added,) = admin.create_partitions(
            [NewPartitions(name="again", count=2, assignments=[(3, 1)])]
        )
        added.raise_for_error()
        assert partitions(cluster, "again")[1].leader == 3
        cluster.kill_broker(3)
        cluster.restart_broker(3)
        wait_until_whole(cluster)
        admin.elect_leaders(ElectionType.PREFERRED)
    again = partitions(cluster, "again")[1]
    assert (again.leader, sorted(again.isr)) == (3, [1, 3])
    assert again.leader_epoch > 0, "epochs go on"
    assert client.end_offsets("again", 2) == {0: 0, 1: 0}
    client.produce("again", {1: [b"new"]})
    assert client.consume("again", {1: 1}) == {1: [b"new"]}


def produced(cluster: RunningCluster, topic: str, partition: int) -> str:
    """Produce one record with a new producer, and return the name of the error or "NONE"."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 3_000}
    )
    said: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, _message: object) -> None:
        said.append("NONE" if error is None else error.name())

    try:
        producer.produce(topic, b"late", partition=partition, on_delivery=delivered)
    except confluent_kafka.KafkaException as refused:
        # A client that knows the topic by now refuses the record before it takes it.
        return str(refused.args[0].name())
    producer.flush(PATIENCE_S)
    (outcome,) = said
    return outcome


def test_c14_a_removed_partition_is_unknown_to_those_who_use_it_and_begins_empty_again(
    cluster: RunningCluster,
) -> None:
    create(cluster, "shrinks", (1, 2), (2, 1))
    client = Confluent(cluster.bootstrap)
    client.produce("shrinks", {1: [b"old"]})
    done = quorate(
        "topics",
        "alter",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        "shrinks",
        "--remove-partitions",
        "1",
    )
    assert done == "Topic shrinks has 1 partitions.\n"
    wait_until_known(cluster, "shrinks", 1)
    assert produced(cluster, "shrinks", 1) == "_UNKNOWN_PARTITION"
    with cluster.admin() as admin:
        (refused,) = admin.remove_partitions([PartitionName(topic="shrinks", partition=0)])
        (added,) = admin.create_partitions([NewPartitions(name="shrinks", count=2)])
    assert refused.error_code == errors_pb2.INVALID_PARTITIONS
    added.raise_for_error()
    wait_until_known(cluster, "shrinks", 2)
    assert client.end_offsets("shrinks", 2) == {0: 0, 1: 0}
    client.produce("shrinks", {1: [b"new"]})
    assert client.consume("shrinks", {1: 1}) == {1: [b"new"]}
