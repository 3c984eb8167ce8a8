"""A broker's disk is full: others lead, or it refuses batches and serves reads until then."""

from collections.abc import Iterator, Sequence

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.failing_disks import fill_disk, free_disk
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC, PARTITIONS = "load", 3
RECORDS_AROUND = 20


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, voters=1) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_known(cluster, TOPIC, PARTITIONS)
        yield cluster


def leaders(cluster: RunningCluster) -> list[int]:
    with cluster.admin() as admin:
        return [partition.leader for partition in admin.describe_topics([TOPIC])[0].partitions]


def isrs(cluster: RunningCluster) -> list[Sequence[int]]:
    with cluster.admin() as admin:
        return [partition.isr for partition in admin.describe_topics([TOPIC])[0].partitions]


def has_said(cluster: RunningCluster, broker_id: int, what: str) -> bool:
    return any(what in line for line in cluster.broker_log(broker_id))


def test_scenario_20_a_leader_whose_disk_is_full_stays_and_loses_nothing(
    cluster: RunningCluster,
) -> None:
    wait_until_whole(cluster)
    victim = leaders(cluster)[0]
    pid = cluster.broker_pid(victim)
    assert pid is not None

    with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_for_more(RECORDS_AROUND)
        fill_disk(pid)
        wait_until(lambda: has_said(cluster, victim, " is full ("), f"broker {victim} to be full")
        load.wait_for_more(RECORDS_AROUND)
        assert victim not in leaders(cluster)
        assert all(victim not in isr for isr in isrs(cluster))
        free_disk(pid)
        wait_until(
            lambda: has_said(cluster, victim, "has room again"), f"broker {victim} to resume"
        )
        load.wait_for_more(RECORDS_AROUND)
        acknowledged = load.stop()
    assert not acknowledged.failures
    assert cluster.broker_pid(victim) == pid
    wait_until_whole(cluster)
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))


def test_a_sole_replica_whose_disk_is_full_serves_reads_and_resumes() -> None:
    with running_cluster(brokers=1, voters=1) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_known(cluster, TOPIC, PARTITIONS)
        (broker_id,) = cluster.broker_ids
        pid = cluster.broker_pid(broker_id)
        assert pid is not None
        with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(RECORDS_AROUND)
            fill_disk(pid)
            wait_until(lambda: has_said(cluster, broker_id, " is full ("), "a full disk")
            assert len(consume_all(cluster.bootstrap, TOPIC, PARTITIONS)) >= RECORDS_AROUND
            with cluster.admin() as admin:
                admin.create_topics(
                    [NewTopic(name="later", num_partitions=1, replication_factor=1)]
                )
            assert cluster.broker_pid(broker_id) == pid
            free_disk(pid)
            load.wait_for_more(RECORDS_AROUND)
            acknowledged = load.stop()
        assert not acknowledged.failures
        assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))
        with acked_load(cluster.bootstrap, "later", 1) as later:
            later.wait_for_more(RECORDS_AROUND)
