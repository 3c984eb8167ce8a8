"""Streams whose drivers and brokers are killed: every offset once, every batch the same again."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load
from tests.support.stream_driver import (
    CHECKPOINTS,
    Batches,
    StreamDriver,
    read_batches,
    read_files,
)
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

TOPIC = "orders"
PARTITIONS = 4
KILLS = 6
BATCHES_TIMEOUT_SECONDS = 300.0
END_TIMEOUT_SECONDS = 240.0


def test_d2_each_offset_once_whoever_is_killed(tmp_path: Path) -> None:
    moments = random.Random(2026)
    with running_cluster(brokers=3) as cluster:
        with cluster.admin() as admin:
            topic = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
            (created,) = admin.create_topics([topic])
            assert created.error == "NONE"
        with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(10)
            for kill in range(KILLS):
                with StreamDriver(cluster.bootstrap, TOPIC, tmp_path, to_the_end=False) as driver:
                    if kill % 2:
                        kill_a_leader(cluster, kill % PARTITIONS)
                    wait_for_batches(driver, tmp_path, moments.randrange(1, 5))
                    let_time_pass(moments.uniform(0, 1), "a kill comes at any moment")
                wait_until_whole(cluster)
            acknowledged = load.stop()
        with StreamDriver(cluster.bootstrap, TOPIC, tmp_path, to_the_end=True) as driver:
            driver.wait_until_done(END_TIMEOUT_SECONDS)
    rows = read_files(tmp_path)
    # By place, not by key: the load is not idempotent, a killed leader may have made it send twice.
    key_at = {(partition, offset): key for partition, offset, key in rows}
    assert len(key_at) == len(rows) >= len(acknowledged.offsets)
    assert all(key_at[place] == key for key, place in acknowledged.offsets.items())
    for partition in range(PARTITIONS):
        offsets = sorted(offset for p, offset, _ in rows if p == partition)
        assert offsets == list(range(len(offsets)))
        check_batches(read_batches(tmp_path), partition, offsets[-1])


def wait_for_batches(driver: StreamDriver, folder: Path, more: int) -> None:
    """Wait until so many more batches were begun; a batch is under way then."""
    before = len(batches_begun(folder))

    def are_begun() -> bool:
        driver.check_alive()
        return len(batches_begun(folder)) >= before + more

    wait_until(are_begun, f"{more} batches since {before}", timeout_s=BATCHES_TIMEOUT_SECONDS)


def batches_begun(folder: Path) -> list[Path]:
    found = [folder / checkpoint / "offsets" for checkpoint in CHECKPOINTS]
    return [file for offsets in found for file in offsets.glob("[0-9]*")]


def kill_a_leader(cluster: RunningCluster, partition: int) -> None:
    with cluster.admin() as admin:
        (found,) = admin.describe_topics([TOPIC])
    leader = found.partitions[partition].leader
    cluster.kill_broker(leader)
    cluster.restart_broker(leader, wait=False)


def check_batches(batches: Batches, partition: int, last_offset: int) -> None:
    """Each attempt at a batch was given the same, and the batches follow each other to the end."""
    assert sorted(batches) == list(range(len(batches)))
    seen: list[int] = []
    for batch_id in sorted(batches):
        first, *others = batches[batch_id]
        assert all(other == first for other in others), batch_id
        assert set(first.values()) <= {1}
        seen += sorted(offset for p, offset in first if p == partition)
    assert all(later == earlier + 1 for earlier, later in pairwise(seen))
    assert seen[-1] == last_offset
