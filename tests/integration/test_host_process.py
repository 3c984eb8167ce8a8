"""The brokers of a host in forked processes stop together, start again, and never stay behind.

``test_broker_processes.py`` shows the same without brokers. Here are six on three hosts, and
``quorate node brokers`` forks those of host 1 in each test.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.cli import alive, command, quorate_error
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

HOST = (1, 2)
PARTITIONS = 6
RECORDS_AROUND = 10

_topics = (f"hosted-{number}" for number in count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(
        brokers=6,
        brokers_per_host=2,
        default_replication_factor=3,
        min_insync_replicas=2,
        broker_session_timeout_ms=2_000,
    ) as cluster:
        for broker_id in HOST:
            cluster.stop_broker(broker_id)
        yield cluster


@pytest.fixture
def host(cluster: RunningCluster) -> Iterator[subprocess.Popen[bytes]]:
    """The process that forks the brokers of host 1; they are up."""
    files = [cluster.folder / "config" / f"broker-{broker_id}.toml" for broker_id in HOST]
    words = [word for file in files for word in ("--config", str(file))]
    with (cluster.folder / "logs" / "host-1.log").open("ab") as log:
        process = subprocess.Popen(command("node", "brokers", *words), stdout=log, stderr=log)
    try:
        wait_until_whole(cluster)
        yield process
    finally:
        forked = children_of(process.pid)
        process.terminate()
        assert process.wait(30) is not None
        wait_until(lambda: not alive(list(forked.values())), "the brokers to end")


def children_of(pid: int) -> dict[str, int]:
    """The processes that ``pid`` forked, by name."""
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return {}
    return {Path(f"/proc/{one}/comm").read_text().strip(): int(one) for one in pids}


def said(cluster: RunningCluster) -> str:
    return (cluster.folder / "logs" / "host-1.log").read_text()


@pytest.mark.slow  # Beside other tests a follower may be late for reasons of its own.
def test_a_host_stops_while_every_partition_keeps_its_minimum_of_replicas(
    cluster: RunningCluster, host: subprocess.Popen[bytes]
) -> None:
    topic = next(_topics)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name=topic, num_partitions=PARTITIONS)])[0].raise_for_error()
        led = {one.leader for one in admin.describe_topics([topic])[0].partitions}
    assert set(HOST) <= led
    below: set[object] = set()
    with acked_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_for_more(RECORDS_AROUND)
        host.terminate()
        while host.poll() is None:
            below |= set(cluster.status().under_min_isr_partitions)
        load.wait_for_more(RECORDS_AROUND)
        acknowledged = load.stop()
    assert host.returncode == 0
    assert not below
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, topic, PARTITIONS))


@pytest.mark.slow
def test_a_killed_broker_starts_again_and_the_other_one_goes_on(
    cluster: RunningCluster, host: subprocess.Popen[bytes]
) -> None:
    before = children_of(host.pid)
    assert set(before) == {"broker-1", "broker-2"}
    os.kill(before["broker-1"], signal.SIGKILL)
    wait_until(
        lambda: children_of(host.pid).get("broker-1", before["broker-1"]) != before["broker-1"],
        "broker 1 to start again",
    )
    assert children_of(host.pid)["broker-2"] == before["broker-2"]
    assert "broker-1 was killed by signal 9: it starts again in 1000 ms" in said(cluster)
    wait_until_whole(cluster)


@pytest.mark.slow
def test_brokers_end_with_the_process_that_forked_them(
    cluster: RunningCluster, host: subprocess.Popen[bytes]
) -> None:
    forked = list(children_of(host.pid).values())
    host.kill()
    wait_until(lambda: not alive(forked), "the brokers to end")
    for broker_id in HOST:
        assert f"broker {broker_id} stops" in said(cluster), "they hand their leaderships over"


@pytest.mark.slow
def test_a_wrong_configuration_starts_nothing(cluster: RunningCluster) -> None:
    same = str(cluster.folder / "config" / "broker-3.toml")
    other_host = str(cluster.folder / "config" / "broker-5.toml")
    error = quorate_error("node", "brokers", "--config", same, "--config", other_host, code=2)
    assert "need the same broker.rack" in error
    assert "host-2" in error
    assert "host-3" in error
