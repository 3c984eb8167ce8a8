"""Each role stops, is killed and bounces, in turn and together, under acks=all load (scenario 18).

Nothing acknowledged is lost, and order is kept: the load has one request in flight per broker.
"""

from collections.abc import Callable, Iterator

import pytest

from quorate.client.results import ClusterStatus, NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import (
    acked_load,
    assert_nothing_lost,
    assert_order_kept,
    consume_all,
)
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import RECOVERY_TIMEOUT_S, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
RECORDS_AFTER = 20
"""Records per partition acknowledged while it is away, and again when it is back."""
PATIENCE_S = 60.0
STILL_S = 0.3


class Roles:
    """Who plays which role now; brokers and voters are told apart by the sign."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def leader(self) -> int:
        with self._cluster.admin() as admin:
            return admin.describe_topics([self._topic])[0].partitions[0].leader

    def follower(self) -> int:
        """Of partition 0, and not the controller if that can be."""
        others = [b for b in self._cluster.broker_ids if b != self.leader()]
        return next((b for b in others if b != self.controller()), others[0])

    def controller(self) -> int:
        return self._cluster.controller_id()

    def quorum_leader(self) -> int:
        wait_until(lambda: self._cluster.quorum_leader() > 0, "a quorum leader")
        return -self._cluster.quorum_leader()

    def one_after_the_other(self) -> Iterator[set[int]]:
        """Victims, chosen when it is their turn; at last all roles but the follower's at once."""
        for role in (self.leader, self.follower, self.controller, self.quorum_leader):
            yield {role()}
        yield {self.leader(), self.controller(), self.quorum_leader()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, voters=3) as cluster:
        yield cluster


def stop(cluster: RunningCluster, victim: int) -> None:
    if victim < 0:
        cluster.stop_voter(-victim)
    else:
        cluster.stop_broker(victim)


def kill(cluster: RunningCluster, victim: int) -> None:
    """A broker dies while the others stand still: what it acknowledges then, it alone has."""
    if victim < 0:
        cluster.kill_voter(-victim)
        return
    others = [b for b in cluster.broker_ids if b != victim and cluster.broker_pid(b) is not None]
    for other in others:
        cluster.pause_broker(other)
    try:
        let_time_pass(STILL_S, "what the broker acknowledges now, it alone has")
        cluster.kill_broker(victim)
    finally:
        for other in others:
            cluster.resume_broker(other)


def bounce(cluster: RunningCluster, victim: int) -> None:
    """Killed and started again at once: back before its session expires."""
    if victim < 0:
        cluster.restart_voter(-victim)
    else:
        cluster.restart_broker(victim, wait=False)


def wait_until_registered_again(
    cluster: RunningCluster, victim: int, before: ClusterStatus
) -> None:
    old = before.broker(victim)

    def has_newer_epoch() -> bool:
        new = cluster.status().broker(victim)
        return old is not None and new is not None and new.epoch > old.epoch

    if victim > 0:
        what = f"broker {victim} to register again"
        wait_until(has_newer_epoch, what, timeout_s=RECOVERY_TIMEOUT_S)


Away = Callable[[RunningCluster, int], None]


@pytest.mark.parametrize("away", [stop, kill, bounce])
def test_scenario_18_every_role_in_turn_and_together_loses_nothing_and_keeps_order(
    cluster: RunningCluster, away: Away
) -> None:
    topic = f"{away.__name__}-every-role"
    new = NewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)
    with cluster.admin() as admin:
        admin.create_topics([new])[0].raise_for_error()
    wait_until_whole(cluster)
    one_at_a_time = {"max_in_flight_requests_per_connection": 1}
    with acked_load(cluster.bootstrap, topic, PARTITIONS, **one_at_a_time) as load:
        for victims in Roles(cluster, topic).one_after_the_other():
            load.wait_for_more(RECORDS_AFTER, timeout_s=PATIENCE_S)
            before = cluster.status()
            for victim in victims:
                away(cluster, victim)
            load.wait_for_more(RECORDS_AFTER, timeout_s=PATIENCE_S)
            if away is not bounce:
                for victim in victims:
                    bounce(cluster, victim)
            for victim in victims:
                wait_until_registered_again(cluster, victim, before)
            wait_until_whole(cluster)
        acknowledged = load.stop()
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, topic, PARTITIONS))
    assert_order_kept(acknowledged)
