"""The pytest fixture and ``running_cluster``: a real cluster in about a second, gone afterwards."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.common.configuration import ConfigError
from quorate.testing import running_cluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.cli import alive
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

START_LIMIT_S = 6.0
"""About a second on an idle machine; shared cores get more."""


def test_a_cluster_is_up_soon_and_gone_without_a_trace() -> None:
    begin = time.monotonic()
    with running_cluster() as cluster:
        seconds = time.monotonic() - begin
        pids = [cluster.broker_pid(1), cluster.voter_pid(1)]
        folder = cluster.folder
        assert cluster.controller_id() == 1
        assert cluster.quorum_leader() == 1
    assert seconds < START_LIMIT_S
    assert alive([pid for pid in pids if pid]) == []
    assert not folder.exists()


def test_a_test_gets_a_cluster_that_any_client_can_use(quorate_cluster: ClusterFactory) -> None:
    cluster = quorate_cluster(log_flush="os")
    acknowledged: list[int | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(
        "auto-created", b"v", on_delivery=lambda _, message: acknowledged.append(message.offset())
    )
    assert producer.flush(20) == 0
    assert acknowledged == [0]


def test_two_clusters_side_by_side(quorate_cluster: ClusterFactory) -> None:
    first, second = quorate_cluster(), quorate_cluster()
    assert first.status().cluster_id != second.status().cluster_id


def test_kill_and_restart(quorate_cluster: ClusterFactory) -> None:
    cluster = quorate_cluster(brokers=2)
    before = cluster.status()
    victim = before.controller_id
    cluster.kill_broker(victim)
    assert cluster.broker_pid(victim) is None
    cluster.wait_until(
        lambda: cluster.status().controller_epoch > before.controller_epoch, "a new controller"
    )
    assert cluster.controller_id() != victim
    cluster.restart_broker(victim)
    broker = cluster.status().broker(victim)
    earlier = before.broker(victim)
    assert broker is not None
    assert earlier is not None
    assert broker.epoch > earlier.epoch
    cluster.restart_voter(1)
    cluster.wait_until(lambda: cluster.quorum_leader() == 1, "the voter to lead again")


def test_a_wrong_key_is_refused_before_anything_starts() -> None:
    with (
        pytest.raises(ConfigError, match=r"did you mean log\.flush"),
        running_cluster(log_flus="os"),
    ):
        pass


def test_unknown_ids_are_named(quorate_cluster: ClusterFactory) -> None:
    cluster = quorate_cluster()
    with pytest.raises(LocalClusterError, match="no broker 7: there are 1"):
        cluster.kill_broker(7)


def test_processes_end_with_a_killed_test_run() -> None:
    program = (
        "import os, signal\n"
        "from quorate.testing import running_cluster\n"
        "with running_cluster() as cluster:\n"
        "    print(cluster.broker_pid(1), cluster.voter_pid(1), cluster.folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    broker, voter, folder = done.stdout.split()
    wait_until(lambda: not alive([int(broker), int(voter)]), f"the end of {folder}", timeout_s=20)
    subprocess.run(["rm", "-rf", folder], check=True)
