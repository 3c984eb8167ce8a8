"""A broker that has lost sight of the quorum goes on leading with a frozen ISR, and says so."""

import pytest

from quorate.client.results import NewTopic
from quorate.testing import running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SESSION_TIMEOUT_MS = 1_000


def test_rule_6_leaders_go_on_while_the_quorum_is_away_and_status_says_so() -> None:
    config = {"broker.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    with running_cluster(brokers=2, voters=1, config=config) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name="kept", num_partitions=2, replication_factor=2)
            admin.create_topics([new])[0].raise_for_error()
        before = wait_until_whole(cluster)
        assert before.alerts == ()
        with acked_load(cluster.bootstrap, "kept", 2) as load:
            load.wait_for_more(10)
            (voter,) = cluster.voter_ids
            cluster.kill_voter(voter)
            wait_until(
                lambda: "frozen" in " ".join(cluster.status().alerts), "an alert of the broker"
            )
            load.wait_for_more(30)
            cluster.restart_voter(voter)
            wait_until(lambda: not cluster.status().alerts, "the end of the alert")
            load.wait_for_more(10)
            acknowledged = load.stop()
        after = wait_until_whole(cluster)
        assert not acknowledged.failures
        assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, "kept", 2))
        assert [broker.epoch for broker in after.brokers] == [
            broker.epoch for broker in before.brokers
        ]
