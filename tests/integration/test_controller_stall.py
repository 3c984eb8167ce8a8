"""Processes that stop and go on: the controller itself (E4), and a broker it waits for (C18)."""

import threading
from collections.abc import Callable

import pytest

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.client.results import ClusterStatus, NewTopic, PartitionInfo
from quorate.testing.pytest_plugin import ClusterFactory
from quorate.testing.running import RunningCluster
from tests.support.cli import quorate
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_TIMEOUT_MS = 2_000


def as_others_see_it(cluster: RunningCluster, without: int) -> ClusterStatus:
    addresses = [cluster.broker_grpc_address(one) for one in cluster.broker_ids if one != without]
    with AdminClient(grpc_addresses=addresses, timeout_ms=4_000) as admin:
        return admin.cluster_status()


class Creating(threading.Thread):
    """Creates topics one after the other, so that the controller has work in its hands."""

    def __init__(self, cluster: RunningCluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._stop_asked = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stop_asked.is_set():
            number += 1
            new = NewTopic(name=f"topic-{number}", num_partitions=4, replication_factor=2)
            try:
                with self._cluster.admin() as admin:
                    if admin.create_topics([new])[0].ok:
                        self.acknowledged.append(new.name)
            except QuorateError:
                pass

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(60)


def test_e4_a_controller_that_was_stopped_does_not_act_when_it_goes_on(
    quorate_cluster: Callable[..., RunningCluster],
) -> None:
    cluster = quorate_cluster(brokers=3, config={"broker.session.timeout.ms": SESSION_TIMEOUT_MS})
    before = wait_until_whole(cluster)
    creating = Creating(cluster)
    creating.start()
    wait_until(lambda: len(creating.acknowledged) > 3, "topics to be created")
    cluster.pause_broker(before.controller_id)
    try:
        wait_until(
            lambda: (
                as_others_see_it(cluster, before.controller_id).controller_epoch
                > before.controller_epoch
            ),
            "another controller",
        )
    finally:
        cluster.resume_broker(before.controller_id)
    count = len(creating.acknowledged)
    wait_until(lambda: len(creating.acknowledged) > count + 3, "topics to be created again")
    creating.stop()
    after = wait_until_whole(cluster)
    assert after.controller_epoch == before.controller_epoch + 1
    assert after.controller_id != before.controller_id
    with cluster.admin() as admin:
        assert set(creating.acknowledged) <= set(admin.list_topics())
    said = "\n".join(cluster.broker_log(before.controller_id, 2_000))
    assert f"no longer the controller of epoch {before.controller_epoch}" in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def patient(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    """Sessions outlast every silence, and replication streams notice it soon."""
    return module_quorate_cluster(
        brokers=3,
        config={
            "broker.session.timeout.ms": 30_000,
            "controller.socket.timeout.ms": 300,
            "replica.silence.max.ms": 1_500,
        },
    )


def test_c13_a_follower_that_is_not_active_leaves_the_isr_of_an_idle_partition(
    patient: RunningCluster,
) -> None:
    """Nobody produces, at any time; the broker's session is alive, and its log is at the end."""
    controller = wait_until_whole(patient).controller_id
    follower, silent = (one for one in patient.broker_ids if one != controller)
    with patient.admin() as admin:
        new = NewTopic(name="idle", assignments=[(controller, follower, silent)])
        admin.create_topics([new])[0].raise_for_error()

    def idle() -> PartitionInfo:
        with patient.admin() as admin:
            return admin.describe_topics(["idle"])[0].partitions[0]

    wait_until_whole(patient)
    patient.pause_broker(silent)
    try:
        wait_until(lambda: set(idle().isr) == {controller, follower}, "it to leave", timeout_s=20)
        assert silent in [broker.id for broker in patient.status().brokers], "its session lives"
    finally:
        patient.resume_broker(silent)
    wait_until(lambda: len(idle().isr) == 3, "it to be back", timeout_s=20)
    back, offset = idle(), wait_until_whole(patient).metadata_offset
    let_time_pass(4.0, "silence would be noticed twice by now")
    assert idle() == back, "an idle cluster does not flap"
    assert patient.status().metadata_offset == offset
    assert (back.leader, back.leader_epoch) == (controller, 0)


def test_c18_an_unanswered_leader_and_isr_is_told_by_status_wherever_it_is_asked(
    patient: RunningCluster,
) -> None:
    cluster = patient
    controller = wait_until_whole(cluster).controller_id
    silent, other = (one for one in cluster.broker_ids if one != controller)
    cluster.pause_broker(silent)
    try:
        with cluster.admin() as admin:
            new = NewTopic(name="orders", assignments=[(controller, silent)])
            admin.create_topics([new])[0].raise_for_error()
        at = ("--bootstrap-server", cluster.broker_address(other))
        wait_until(
            lambda: f"LeaderAndIsr to broker {silent} got no answer" in quorate("status", *at),
            "an alert",
        )
    finally:
        cluster.resume_broker(silent)
    wait_until(lambda: "got no answer" not in quorate("status", *at), "no alert any more")
