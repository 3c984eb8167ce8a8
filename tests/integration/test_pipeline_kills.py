"""kill -9 and SIGSTOP of brokers and clients at random, under all that clients do at once.

An idempotent load fills a topic; a plain consumer group reads it; processes with transactional ids
copy it, and some of their transactions are aborted, some of the processes killed, stopped or
fenced. Nothing is lost, nothing is there twice, order is kept, committed offsets never go back, and
readers of committed records are never shown an aborted one.
"""

import math
import os
import random
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import (
    AckedLoad,
    Acknowledged,
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
    consume_all,
)
from tests.support.broker_kills import Kills
from tests.support.pipeline import history
from tests.support.pipeline.copier import FENCED_EXIT_CODE, STUCK_EXIT_CODE
from tests.support.pipeline.crew import Crew, copier, reader
from tests.support.pipeline.journal import Kind, Place
from tests.support.pipeline.watchers import (
    CommittedOffsets,
    LiveOutput,
    are_transactions_over,
    read_copies,
)
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = pytest.mark.integration

PARTITIONS = 4
INPUT, OUTPUT = "input", "output"
READERS, COPIERS = "readers", "copiers"
"""Groups."""
DISTURB_CHANCE = 0.6
BREATHE_CHANCE = 0.3
EVERY_S = 0.003
CATCH_UP_S = 60.0
CONFIG = {
    "group.initial.rebalance.delay.ms": 200,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}

OF_STOPPED = {"broker.session.timeout.ms": 1_000}
"""A stopped broker closes no connection: only its session's end tells the others."""


def create_topics(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        for name in (INPUT, OUTPUT):
            new = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()


class Pipeline:
    """Everybody at work, until all is read and copied."""

    def __init__(self, cluster: RunningCluster, crew: Crew, load: AckedLoad, seed: int) -> None:
        self._cluster = cluster
        self._crew = crew
        self._load = load
        self._seed = seed
        self._chance = random.Random(seed)
        bootstrap = cluster.bootstrap
        self._read = CommittedOffsets(bootstrap, READERS, INPUT, PARTITIONS)
        self._copied = CommittedOffsets(bootstrap, COPIERS, INPUT, PARTITIONS)
        self._live = LiveOutput(bootstrap, OUTPUT, PARTITIONS)

    def run(self, kills: int, stops: float) -> Acknowledged:
        """What of the load was acknowledged. ``stops``: as of ``Kills``."""
        self._load.wait_for_more(20)
        self._wait_for_progress()
        with self._read, self._copied, self._live:
            chaos = Kills(self._cluster, self._seed, self._disturb, stops=stops)
            chaos.go_on(kills, [self._load])
            wait_until_whole(self._cluster)
            self._crew.go_on()
            self._crew.fill()
            self._wait_for_progress()
            self._load.wait_for_more(20)
            acknowledged = self._load.stop()
            ends = behind_the_last(acknowledged)
            for group in (self._read, self._copied):
                self._wait_for_end(group, ends)
            self._crew.stop()
            self._wait_for_transactions()
        return acknowledged

    def check(self, acknowledged: Acknowledged) -> None:
        """Nothing is lost, nothing is there twice, and so on."""
        consumed = consume_all(self._cluster.bootstrap, INPUT, PARTITIONS)
        assert_nothing_lost(acknowledged, consumed)
        assert_nothing_twice(consumed)
        assert_order_kept(acknowledged)
        inputs = {(p, o) for places in consumed.values() for p, o, _ in places}
        violations = self._of_readers(inputs) + self._of_copiers(inputs)
        assert not violations, "\n".join(violations)

    def _of_readers(self, inputs: set[Place]) -> list[str]:
        journals = self._crew.journals("reader")
        return [
            *history.all_read(inputs, journals),
            *history.taken_over_where_left(journals),
            *history.never_back(self._read.samples),
        ]

    def _of_copiers(self, inputs: set[Place]) -> list[str]:
        told = {
            name: transaction
            for journal in self._crew.journals("copier")
            for name, transaction in history.transactions(journal).items()
        }
        output = self._output("read_committed")
        aborted = {copy.transaction for copy in self._output("read_uncommitted")} - {
            copy.transaction for copy in output
        }
        assert aborted, "no record of an aborted transaction is in the log: nothing was proven"
        return [
            *history.copied_once(inputs, output),
            *history.copied_in_order(output),
            *history.all_or_nothing(told, output),
            *history.offsets_fit(self._copied.samples[-1], output),
            *history.never_back(self._copied.samples),
            *history.shown_early(self._live.copies, output),
        ]

    def _output(self, isolation: str) -> list[history.Copy]:
        return read_copies(self._cluster.bootstrap, OUTPUT, PARTITIONS, isolation, CATCH_UP_S)

    def _disturb(self) -> None:
        """Between two kills of brokers; now and then everybody gets something done."""
        if self._chance.random() < DISTURB_CHANCE:
            self._crew.disturb()
        if self._chance.random() < BREATHE_CHANCE:
            self._wait_for_progress()

    def _wait_for_end(self, group: CommittedOffsets, ends: Mapping[int, int]) -> None:
        """For as long as it comes nearer."""
        last: Sequence[Mapping[int, int]] = ()
        moved_at_s = time.monotonic()

        def has_come() -> bool:
            nonlocal last, moved_at_s
            if group.has_come_to(ends):
                return True
            self._crew.fill()
            if group.samples[-1:] != last:
                last, moved_at_s = group.samples[-1:], time.monotonic()
            stuck_s = time.monotonic() - moved_at_s
            assert stuck_s < CATCH_UP_S, f"{group.name} is at {last}, on its way to {ends}"
            return False

        wait_until(has_come, f"{group.name} to come to {ends}", timeout_s=math.inf)

    def _wait_for_transactions(self) -> None:
        """Whoever was stopped in one leaves it open: its coordinator ends it when its time is up,
        and until then it holds back what others have committed behind it."""
        bootstrap = self._cluster.bootstrap
        wait_until(
            lambda: are_transactions_over(bootstrap, OUTPUT, PARTITIONS),
            f"the end of all transactions in {OUTPUT}",
            timeout_s=CATCH_UP_S,
        )

    def _wait_for_progress(self) -> None:
        done = {"reader": Kind.OFFSETS_COMMITTED, "copier": Kind.COMMITTED}
        before = {prefix: self._crew.count(prefix, kind) for prefix, kind in done.items()}

        def is_made() -> bool:
            self._crew.fill()
            return all(self._crew.count(p, kind) > before[p] for p, kind in done.items())

        wait_until(is_made, f"progress beyond {before}", timeout_s=CATCH_UP_S)


def behind_the_last(acknowledged: Acknowledged) -> dict[int, int]:
    """The offset behind the last record of each partition."""
    places = acknowledged.offsets.values()
    return {p: max(o for q, o in places if q == p) + 1 for p in range(PARTITIONS)}


def assert_crew_ended_well(crew: Crew) -> None:
    """By a signal, at our word, because a successor had begun, or given up by its own library."""
    others = [
        (name, code)
        for name, code in crew.exit_codes()
        if code not in (0, FENCED_EXIT_CODE, STUCK_EXIT_CODE, -signal.SIGKILL)
    ]
    assert not others, f"ended by themselves: {others}\n{crew.last_words(others[0][0])}"


@pytest.mark.parametrize(
    ("kills", "stops"),
    [
        pytest.param(3, 0.0, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param(100, 0.0, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
        pytest.param(40, 0.5, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
        pytest.param(40, 1.0, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
def test_kill_9_loses_doubles_and_reorders_nothing_and_takes_nothing_back(
    tmp_path: Path, kills: int, stops: float
) -> None:
    seed = int(os.environ.get("QUORATE_KILLS_SEED", "0")) or secrets.randbelow(2**31)
    config = {**CONFIG, **(OF_STOPPED if stops else {})}
    with running_cluster(brokers=3, config=config) as cluster:
        create_topics(cluster)
        wait_until_whole(cluster)
        at = cluster.bootstrap
        readers = [reader(number, at, INPUT, READERS) for number in range(2)]
        copiers = [copier(number, at, INPUT, OUTPUT, COPIERS) for number in range(3)]
        try:
            with (
                acked_load(
                    *(cluster.bootstrap, INPUT, PARTITIONS),
                    every_s=EVERY_S,
                    socket_timeout_ms=2_000,
                    enable_idempotence="true",
                ) as load,
                Crew(tmp_path, [*readers, *copiers], seed, stops) as crew,
            ):
                pipeline = Pipeline(cluster, crew, load, seed)
                pipeline.check(pipeline.run(kills, stops))
                assert_crew_ended_well(crew)
        except AssertionError as error:
            raise AssertionError(f"QUORATE_KILLS_SEED={seed}: {error}") from error
