"""kill -9 of brokers and clients at random, under all that clients do at once.

An idempotent load fills a topic; a plain consumer group reads it; processes with transactional ids
copy it, and some of their transactions are aborted, some of the processes killed or fenced. Nothing
is lost, nothing is there twice, order is kept, committed offsets never go back, and readers of
committed records are never shown an aborted one.
"""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import (
    AckedLoad,
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
    consume_all,
)
from tests.support.broker_kills import Kills
from tests.support.pipeline import history
from tests.support.pipeline.crew import Crew, reader
from tests.support.pipeline.journal import Kind, Place
from tests.support.pipeline.watchers import CommittedOffsets
from tests.support.whole_cluster import wait_until_whole

pytestmark = pytest.mark.integration

PARTITIONS = 4
INPUT, OUTPUT = "input", "output"
READERS = "readers"
EVERY_S = 0.003
CATCH_UP_S = 60.0
CONFIG = {
    "group.initial.rebalance.delay.ms": 200,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 6,
}


def create_topics(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        for name in (INPUT, OUTPUT):
            new = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + CATCH_UP_S
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {CATCH_UP_S} s: {what}"
        time.sleep(0.05)


class Pipeline:
    """Everybody at work, until ``stop``; then ``check``."""

    def __init__(self, cluster: RunningCluster, crew: Crew, load: AckedLoad) -> None:
        self._cluster = cluster
        self._crew = crew
        self._load = load
        self._readers = CommittedOffsets(cluster.bootstrap, READERS, INPUT, PARTITIONS)

    def run(self, kills: int, seed: int) -> None:
        self._load.wait_for_more(20)
        self._wait_for_progress()
        with self._readers:
            Kills(self._cluster, seed, self._crew.disturb).go_on(kills, [self._load])
            wait_until_whole(self._cluster)
            self._crew.fill()
            self._wait_for_progress()
            self._load.wait_for_more(20)
            acknowledged = self._load.stop()
            ends = self._ends()
            until(lambda: self._is_read(ends), f"the readers to come to {ends}")
            self._crew.stop()
        consumed = consume_all(self._cluster.bootstrap, INPUT, PARTITIONS)
        assert_nothing_lost(acknowledged, consumed)
        assert_nothing_twice(consumed)
        assert_order_kept(acknowledged)
        self._check_readers({(p, o) for places in consumed.values() for p, o, _ in places})

    def _check_readers(self, inputs: set[Place]) -> None:
        journals = self._crew.journals("reader")
        read = {
            place
            for journal in journals
            for e in journal
            if e.kind is Kind.READ
            for place in e.places
        }
        assert not inputs - read, f"never read: {len(inputs - read)}, as {min(inputs - read)}"
        assert not history.taken_over_where_left(journals)
        assert not history.never_back(self._readers.samples)

    def _ends(self) -> dict[int, int]:
        places = self._load.acknowledged.offsets.values()
        return {p: max(o for q, o in places if q == p) + 1 for p in range(PARTITIONS)}

    def _is_read(self, ends: dict[int, int]) -> bool:
        samples = self._readers.samples
        return bool(samples) and all(samples[-1].get(p, 0) >= end for p, end in ends.items())

    def _wait_for_progress(self) -> None:
        done = {"reader": Kind.OFFSETS_COMMITTED}
        before = {prefix: self._crew.count(prefix, kind) for prefix, kind in done.items()}

        def is_made() -> bool:
            return all(self._crew.count(p, kind) > before[p] for p, kind in done.items())

        until(is_made, f"progress beyond {before}")


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(7, marks=pytest.mark.timeout(300)),
        pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
def test_kill_9_loses_doubles_and_reorders_nothing_and_takes_nothing_back(
    tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("QUORATE_KILLS_SEED", "0")) or secrets.randbelow(2**31)
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create_topics(cluster)
        wait_until_whole(cluster)
        roles = [reader(number, cluster.bootstrap, INPUT, READERS) for number in range(3)]
        try:
            with (
                acked_load(
                    *(cluster.bootstrap, INPUT, PARTITIONS),
                    every_s=EVERY_S,
                    socket_timeout_ms=2_000,
                    enable_idempotence="true",
                ) as load,
                Crew(tmp_path, roles, seed) as crew,
            ):
                Pipeline(cluster, crew, load).run(kills, seed)
        except AssertionError as error:
            raise AssertionError(f"QUORATE_KILLS_SEED={seed}: {error}") from error
