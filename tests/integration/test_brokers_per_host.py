"""Six brokers on three hosts: no partition has two replicas on one host, however it came to be.

One cluster for the whole file. The rack of a broker stands for its host.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quorate.cli.cluster.status_command import racks_line
from quorate.client.results import NewPartitions, NewTopic
from quorate.reassignment.emptying import next_pass
from quorate.testing import RunningCluster, running_cluster
from tests.support.cli import quorate_json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

HOSTS, BROKERS_PER_HOST, PARTITIONS = 3, 2, 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(
        brokers=HOSTS * BROKERS_PER_HOST,
        brokers_per_host=BROKERS_PER_HOST,
        num_partitions=PARTITIONS,
        default_replication_factor=HOSTS,
        min_insync_replicas=HOSTS - 1,
    ) as cluster:
        yield cluster


def host_of(broker: int) -> int:
    return (broker - 1) // BROKERS_PER_HOST


def assert_spread(partitions: list[tuple[int, ...]]) -> None:
    """One replica of each partition on each host, and as many on each broker as on the others."""
    assert partitions
    for replicas in partitions:
        assert {host_of(one) for one in replicas} == set(range(HOSTS)), replicas
    led = Counter(replicas[0] for replicas in partitions)
    held = Counter(one for replicas in partitions for one in replicas)
    brokers = HOSTS * BROKERS_PER_HOST
    assert set(led.values()) == {len(partitions) // brokers}, led
    assert set(held.values()) == {HOSTS * len(partitions) // brokers}, held


def placed(cluster: RunningCluster, topic: str) -> list[tuple[int, ...]]:
    with cluster.admin() as admin:
        found = admin.describe_topics([topic])[0].partitions
    assert all(one.leader == one.replicas[0] for one in found)
    return [one.replicas for one in found]


def test_racks_are_hosts(cluster: RunningCluster) -> None:
    assert racks_line(cluster.status()) == "3, of 2 brokers each"


def test_c4_topics_that_clients_create_by_using_them_are_spread(cluster: RunningCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("used", b"creates it")
    assert producer.flush(20) == 0
    assert_spread(placed(cluster, "used"))


def test_c4_c14_topics_that_are_asked_for_and_partitions_that_are_added_are_spread(
    cluster: RunningCluster,
) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name="asked-for", num_partitions=PARTITIONS, replication_factor=HOSTS)
        admin.create_topics([new])[0].raise_for_error()
        more = NewPartitions(name="asked-for", count=2 * PARTITIONS)
        admin.create_partitions([more])[0].raise_for_error()
    assert_spread(placed(cluster, "asked-for"))


def test_c11_proposed_reassignments_are_spread(cluster: RunningCluster, tmp_path: Path) -> None:
    with cluster.admin() as admin:
        crowded = [(1, 2, 3)] * PARTITIONS
        admin.create_topics([NewTopic(name="crowded", assignments=crowded)])[0].raise_for_error()
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "crowded"}]}))
    words = ("--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3,4,5,6")
    at = ("--bootstrap-server", cluster.bootstrap)
    proposed = quorate_json("reassign", *at, "--generate", *words)["proposed"]["partitions"]
    assert_spread([tuple(one["replicas"]) for one in proposed])


def test_c11_an_emptied_broker_leaves_its_replicas_to_its_host(cluster: RunningCluster) -> None:
    """Every other host has a replica of each of its partitions."""
    with cluster.admin() as admin:
        new = NewTopic(name="moving", num_partitions=PARTITIONS, replication_factor=HOSTS)
        admin.create_topics([new])[0].raise_for_error()
        plan = next_pass(admin, 3).plan
    moving = [replicas for name, replicas in plan.items() if name.topic == "moving"]
    assert len(moving) == PARTITIONS // 2
    for replicas in moving:
        assert 4 in replicas
        assert {host_of(one) for one in replicas} == set(range(HOSTS)), replicas
