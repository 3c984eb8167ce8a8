"""Random kills and pauses of every kind of process, one upon another, under acks=all load.

The seed and the events so far are in the message of a failure: ``QUORATE_SOAK_SEED=…`` repeats the
order of events (not their timing: these are real processes).
"""

import os
import random
import secrets

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.waiting import let_time_pass
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1_500)]

PARTITIONS = 6
EVENTS = int(os.environ.get("QUORATE_SOAK_EVENTS", "60"))
PAUSE_LONGEST_S = 9.0
"""Longer than a broker's session: some sleepers wake up deposed."""


class Chaos:
    """One event after the other; what was stopped comes back, so that the load can go on."""

    def __init__(self, cluster: RunningCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.seed = seed
        self.history: list[str] = []

    def step(self) -> None:
        action = self._random.choice(
            (self.kill_broker, self.kill_voter, self.bounce, self.pause, self.kill_several)
        )
        action()
        let_time_pass(self._random.uniform(0.0, 2.5), "events come at any moment")

    def kill_broker(self) -> None:
        victim = self._random.choice(self._cluster.broker_ids)
        self._note(f"kill broker {victim}")
        self._cluster.kill_broker(victim)
        let_time_pass(self._random.uniform(0.0, 3.0), "some are back before others notice")
        self._cluster.restart_broker(victim, wait=False)

    def kill_voter(self) -> None:
        victim = self._random.choice(self._cluster.voter_ids)
        self._note(f"kill voter {victim}")
        self._cluster.kill_voter(victim)
        let_time_pass(self._random.uniform(0.0, 2.0), "some are back before others notice")
        self._cluster.restart_voter(victim)

    def bounce(self) -> None:
        """Back before its session expires."""
        victim = self._random.choice(self._cluster.broker_ids)
        self._note(f"bounce broker {victim}")
        self._cluster.restart_broker(victim, wait=False)

    def pause(self) -> None:
        victim = self._random.choice(self._cluster.broker_ids)
        pause_s = self._random.uniform(0.2, PAUSE_LONGEST_S)
        self._note(f"pause broker {victim} for {pause_s:.1f} s")
        self._cluster.pause_broker(victim)
        let_time_pass(pause_s, "some pauses outlast a session, others do not")
        self._cluster.resume_broker(victim)

    def kill_several(self) -> None:
        brokers = self._random.sample(self._cluster.broker_ids, self._random.randint(1, 3))
        voters = self._random.sample(self._cluster.voter_ids, self._random.randint(0, 3))
        self._note(f"kill brokers {brokers} and voters {voters}")
        for broker_id in brokers:
            self._cluster.kill_broker(broker_id)
        for voter_id in voters:
            self._cluster.kill_voter(voter_id)
        let_time_pass(self._random.uniform(0.0, 2.0), "some are back before others notice")
        for voter_id in voters:
            self._cluster.restart_voter(voter_id)
        for broker_id in brokers:
            self._cluster.restart_broker(broker_id, wait=False)

    def _note(self, event: str) -> None:
        self.history.append(event)

    def __str__(self) -> str:
        return f"QUORATE_SOAK_SEED={self.seed}, {len(self.history)} events: {self.history}"


def test_d1_d3_random_kills_and_pauses_lose_nothing_acknowledged() -> None:
    seed = int(os.environ.get("QUORATE_SOAK_SEED", "0")) or secrets.randbelow(2**31)
    with running_cluster(brokers=3, voters=3, log_flush="sync") as cluster:
        chaos = Chaos(cluster, seed)
        with cluster.admin() as admin:
            new = NewTopic(name="soak", num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        before = wait_until_whole(cluster)
        try:
            with acked_load(cluster.bootstrap, "soak", PARTITIONS, socket_timeout_ms=2_000) as load:
                for _ in range(EVENTS):
                    chaos.step()
                after = wait_until_whole(cluster)
                load.wait_for_more(30, timeout_s=30.0)
                acknowledged = load.stop()
            assert after.controller_epoch > before.controller_epoch
            assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, "soak", PARTITIONS))
        except AssertionError as error:
            raise AssertionError(f"{chaos}\n{error}") from error
