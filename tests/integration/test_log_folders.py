"""Several log folders per broker (KIP-112): a disk that fails takes only its replicas offline."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from quorate.client.results import NewTopic, PartitionInfo
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.failing_disks import FailingDisks
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC, PARTITIONS = "load", 4
ALONE = "alone"
"""A topic of two partitions, one in each folder of the broker whose disk may fail, and nowhere
else."""
VICTIM = 2


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """Two brokers with two folders each. The second one of broker 2 may fail."""
    disks = FailingDisks(tmp_path)
    if not disks.can_fail:
        pytest.skip("no compiler: the library that fails writes cannot be made")
    folder = tmp_path / "cluster"
    failing = {
        "LD_PRELOAD": disks.environment(VICTIM)["LD_PRELOAD"],
        "FAIL_FLAG": str(tmp_path / "disk-fails"),
        "FAIL_ROOT": str(folder / f"broker-{VICTIM}" / "disk-2"),
    }
    for name, value in failing.items():
        monkeypatch.setenv(name, value)
    with running_cluster(
        brokers=2, voters=1, folder=folder, forked=False, log_dirs="disk-1,disk-2"
    ) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=2)
            alone = NewTopic(name=ALONE, assignments=[[VICTIM], [VICTIM]])
            for result in admin.create_topics([new, alone]):
                result.raise_for_error()
        wait_until_known(cluster, TOPIC, PARTITIONS)
        wait_until_known(cluster, ALONE, 2)
        yield cluster


def partitions(cluster: RunningCluster, topic: str = TOPIC) -> list[PartitionInfo]:
    with cluster.admin() as admin:
        return list(admin.describe_topics([topic])[0].partitions)


def offline(cluster: RunningCluster) -> list[tuple[str, int]]:
    """The partitions that `quorate status` says nobody leads."""
    with cluster.admin() as admin:
        found = admin.cluster_status().offline_partitions
        return [(one.topic, one.partition) for one in found]


def produce_alone(cluster: RunningCluster) -> None:
    """One acknowledged record in each partition of the topic with one replica."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in (0, 1):
        producer.produce(ALONE, b"only copy", str(number).encode(), partition=number)
    assert producer.flush(30) == 0


def without_victim(cluster: RunningCluster) -> set[int]:
    return {one.partition for one in partitions(cluster) if VICTIM not in one.isr}


def test_a_disk_that_fails_takes_its_replicas_alone(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """Where the only replica is on it, nobody leads, and all can see that, until it is back."""
    wait_until_whole(cluster)
    produce_alone(cluster)
    pid = cluster.broker_pid(VICTIM)
    with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_for_more(PARTITIONS * 5)
        (tmp_path / "disk-fails").touch()
        wait_until(lambda: len(without_victim(cluster)) == PARTITIONS // 2, "half to leave ISRs")
        load.wait_for_more(PARTITIONS * 5)
        assert cluster.broker_pid(VICTIM) == pid, "the broker goes on"
        gone = without_victim(cluster)
        assert len(gone) == PARTITIONS // 2
        assert all(one.leader != VICTIM for one in partitions(cluster) if one.partition in gone)
        wait_until(lambda: offline(cluster), "a partition that nobody leads")
        acknowledged = load.stop()
    ((topic, number),) = offline(cluster)
    found = partitions(cluster, ALONE)
    assert topic == ALONE
    assert (found[number].leader, found[number].isr) == (-1, (VICTIM,))
    assert (found[number].offline, found[1 - number].offline) == ((VICTIM,), ())
    assert found[1 - number].leader == VICTIM, "its other folder works"
    known = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    told = known.list_topics(ALONE, timeout=10).topics[ALONE].partitions[number]
    known.close()
    assert told.error is not None
    assert told.error.code() == KafkaError.LEADER_NOT_AVAILABLE

    (tmp_path / "disk-fails").unlink()
    cluster.restart_broker(VICTIM)
    wait_until(lambda: not offline(cluster), "its folder to be back")
    assert len(consume_all(cluster.bootstrap, ALONE, 2)) == 2, "nothing is lost"
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))


@pytest.mark.slow
def test_a_disk_that_failed_and_is_not_there_brings_its_replicas_back(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    wait_until_whole(cluster)
    produce_alone(cluster)
    with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_for_more(PARTITIONS * 5)
        (tmp_path / "disk-fails").touch()
        wait_until(lambda: len(without_victim(cluster)) == PARTITIONS // 2, "half to leave ISRs")
        (tmp_path / "disk-fails").unlink()
        gone = without_victim(cluster)

        cluster.stop_broker(VICTIM)
        disk = cluster.folder / f"broker-{VICTIM}" / "disk-2"
        os.rename(disk, away := disk.with_name("away"))
        cluster.restart_broker(VICTIM)
        wait_until(lambda: without_victim(cluster) == gone, "the rest to be in sync")
        load.wait_for_more(PARTITIONS * 5)
        wait_until(lambda: offline(cluster), "the only replica to be offline")
        assert not disk.exists(), "no log takes the place of one on the missing disk"

        cluster.stop_broker(VICTIM)
        os.rename(away, disk)
        cluster.restart_broker(VICTIM)
        wait_until(lambda: not without_victim(cluster), "all to be in sync again")
        wait_until(lambda: not offline(cluster), "the only replica to lead again")
        assert len(consume_all(cluster.bootstrap, ALONE, 2)) == 2, "nothing is lost"
        load.wait_for_more(PARTITIONS * 5)
        acknowledged = load.stop()
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, TOPIC, PARTITIONS))


@pytest.mark.slow
def test_a_second_folder_is_added_and_nothing_counts_as_lost() -> None:
    """The only replicas there are: one that is declared lost would be offline for good."""
    with running_cluster(brokers=1, voters=1) as cluster:
        (broker_id,) = cluster.broker_ids
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)])
        wait_until_known(cluster, TOPIC, 2)
        config = cluster.folder / "config" / f"broker-{broker_id}.toml"
        first = cluster.folder / f"broker-{broker_id}"
        folders = f'"log.dirs" = "{first},{first / "disk-2"}"\n'
        config.write_text(config.read_text() + folders)
        cluster.restart_broker(broker_id)
        with cluster.admin() as admin:
            later = NewTopic(name="later", num_partitions=2, replication_factor=1)
            admin.create_topics([later])[0].raise_for_error()
        wait_until_known(cluster, "later", 2)
        assert list((first / "disk-2").glob("segment-*")), "the second folder is used"
        for _ in range(2):
            cluster.stop_broker(broker_id)
            cluster.restart_broker(broker_id)
            wait_until_whole(cluster)
            assert not any("is lost on this broker" in line for line in cluster.broker_log(1, 200))
