"""A stream whose driver and leaders are killed -9, over real brokers: every offset once."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load
from tests.support.stream_loop import committed_rows
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TOPIC = "orders"
PARTITIONS = 4
PROGRESS_TIMEOUT_SECONDS = 120.0
END_TIMEOUT_SECONDS = 120.0


@contextmanager
def driver(
    cluster: RunningCluster, folder: Path, starting: str, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.stream_loop", cluster.bootstrap, TOPIC]
    process = subprocess.Popen([*command, str(folder), "--starting", starting, *more])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("starting", "kills"),
    [
        ("latest", 2),
        pytest.param("earliest", 20, marks=pytest.mark.slow),
    ],
)
def test_d2_each_offset_once_whoever_is_killed(tmp_path: Path, starting: str, kills: int) -> None:
    moments = random.Random(kills)
    with running_cluster(brokers=3) as cluster:
        with cluster.admin() as admin:
            topic = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
            (created,) = admin.create_topics([topic])
            assert created.error == "NONE"
        with acked_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(5)
            for kill in range(kills):
                with driver(cluster, tmp_path, starting) as running:
                    # Somewhere in a batch, or between two, or while it starts.
                    wait_for_batches(running, tmp_path, moments.randrange(4))
                    if kill % 2:
                        kill_a_leader(cluster, kill % PARTITIONS)
                    let_time_pass(moments.uniform(0, 0.3), "a kill comes at any moment")
                wait_until_whole(cluster)
            acknowledged = load.stop()
        with driver(cluster, tmp_path, starting, "--to-the-end") as running:
            assert running.wait(END_TIMEOUT_SECONDS) == 0
    check_rows(tmp_path, acknowledged.offsets, starting)


def check_rows(folder: Path, acknowledged: dict[bytes, tuple[int, int]], starting: str) -> None:
    batches = committed_rows(folder)
    assert sorted(batches) == list(range(len(batches)))
    rows = [row for batch_id in sorted(batches) for row in batches[batch_id]]
    found = {(key, (partition, offset)) for partition, offset, key in rows}
    for partition in range(PARTITIONS):
        offsets = [offset for p, offset, _ in rows if p == partition]
        first = 0 if starting == "earliest" else offsets[0]
        assert offsets == list(range(first, first + len(offsets)))
        expected = {
            (key, place)
            for key, place in acknowledged.items()
            if place[0] == partition and place[1] >= first
        }
        assert expected <= found


def wait_for_batches(running: subprocess.Popen[bytes], folder: Path, more: int) -> None:
    """Wait until so many more batches were begun."""
    before = begun(folder)

    def are_begun() -> bool:
        assert running.poll() is None, "the driver ended"
        return begun(folder) >= before + more

    wait_until(are_begun, f"{more} batches after {before}", timeout_s=PROGRESS_TIMEOUT_SECONDS)


def begun(folder: Path) -> int:
    return len(list((folder / "offsets").glob("*.json")))


def kill_a_leader(cluster: RunningCluster, partition: int) -> None:
    with cluster.admin() as admin:
        (found,) = admin.describe_topics([TOPIC])
    leader = found.partitions[partition].leader
    cluster.kill_broker(leader)
    cluster.restart_broker(leader, wait=False)
