"""An ISR that flaps under idempotent and transactional producers: nothing lost, twice or reordered.

Two topics: one whose ISR must have two of three members, and one that needs all three, where every
pause of a follower refuses producers. What the producers were told is compared with all that the
logs have; ``-s`` prints what was done.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.flapping.aio import AioLoad
from tests.support.flapping.altered import altered
from tests.support.flapping.confluent import ConfluentLoad
from tests.support.flapping.flaps import SETTINGS, Flaps
from tests.support.flapping.java import JavaLoad, java_class_path
from tests.support.flapping.numbers import PARTITIONS
from tests.support.flapping.reading import read_all
from tests.support.flapping.story import Story, Verdict, judge
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPICS = {"two-in-sync": 2, "three-in-sync": 3}
FLAPS = 220
SEED = 16
SLOW_S = 0.02
FAST_S = 0.002
"""So often a producer sends a record; a slow one's requests take 0.02 s each to arrive."""


class Load(Protocol):
    """One producer; ``story`` is what it was told."""

    name: str
    story: Story

    def start(self) -> None: ...

    def stop(self) -> None: ...


MakeLoad = Callable[[str, str, Sequence[str], float, bool], Load]


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with altered("slow-link"), flapping_cluster() as cluster:
        yield cluster


def flapping_cluster() -> AbstractContextManager[RunningCluster]:
    return running_cluster(brokers=3, config=SETTINGS)


def create_topics(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        for topic, minimum in TOPICS.items():
            new = NewTopic(
                name=topic,
                num_partitions=PARTITIONS,
                replication_factor=3,
                configs={"min.insync.replicas": str(minimum)},
            )
            admin.create_topics([new])[0].raise_for_error()
    for topic in TOPICS:
        wait_until_known(cluster, topic, PARTITIONS)
    wait_until_whole(cluster)


def flap_under(
    cluster: RunningCluster, loads: Sequence[Load], flap: Callable[[Flaps], None], seed: int = SEED
) -> Verdict:
    """Flap while the loads run; then read everything and compare."""
    flaps = Flaps(cluster, seed)
    for load in loads:
        load.start()
    try:
        flap(flaps)
    finally:
        for load in loads:
            load.stop()
    wait_until_whole(cluster)
    told = [load.story for load in loads]
    committed = judge(told, read_all(cluster.bootstrap, list(TOPICS), committed=True))
    everything = read_all(cluster.bootstrap, list(TOPICS), committed=False)
    stored = judge([Story(acknowledged=one.acknowledged) for one in told], everything)
    report(loads, flaps, seed, sum(len(numbers) for numbers in everything.values()))
    say(f"committed: {committed}; all: {stored}")
    return committed if not committed.is_good else stored


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def report(loads: Sequence[Load], flaps: Flaps, seed: int, stored: int) -> None:
    say(f"\nseed {seed}, {sum(flaps.done.values())} flaps ({dict(flaps.done)}), {stored} stored")
    for load in loads:
        story = load.story
        say(
            f"{load.name}: {len(story.acknowledged)} acknowledged, {len(story.aborted)} aborted, "
            f"{len(story.uncertain)} transactions of unknown end, {story.epochs} new epochs, "
            f"{len(story.failures)} failures "
            f"{story.failures[:3]}"
        )


def producers(make: MakeLoad, cluster: RunningCluster) -> list[Load]:
    """Idempotent and transactional producers of one client, over fast and over slow links."""
    names = list(TOPICS)
    address = cluster.bootstrap
    return [
        make("slow-1", address, names[1:], SLOW_S, False),
        make("slow-2", address, names, SLOW_S, False),
        make("fast", address, names, FAST_S, False),
        make("transactions", address, names, FAST_S, True),
    ]


def test_kip_98_a_few_flaps_lose_double_and_reorder_nothing(cluster: RunningCluster) -> None:
    create_topics(cluster)
    names = list(TOPICS)
    loads: list[Load] = [
        ConfluentLoad("slow-librdkafka", cluster.bootstrap, names[1:], SLOW_S, transactional=False),
        ConfluentLoad("fast-librdkafka", cluster.bootstrap, names, FAST_S, transactional=False),
        AioLoad("aiokafka", cluster.bootstrap, names, FAST_S, transactional=True),
    ]
    verdict = flap_under(cluster, loads, lambda flaps: flaps.pauses(4))
    assert verdict.is_good, verdict
    assert all(load.story.acknowledged for load in loads)
    assert not loads[0].story.failures
    assert not new_epochs(loads)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("client", ["librdkafka", "java", "aiokafka"])
def test_kip_98_many_flaps_lose_double_and_reorder_nothing(
    cluster: RunningCluster, client: str, tmp_path: Path
) -> None:
    create_topics(cluster)
    loads = producers(maker_of(client, tmp_path), cluster)
    verdict = flap_under(cluster, loads, lambda flaps: flaps.run(FLAPS))
    assert verdict.is_good, verdict
    assert all(load.story.acknowledged for load in loads)
    assert not new_epochs(loads)


def new_epochs(loads: Sequence[Load]) -> list[str]:
    """The idempotent producers that began a new epoch, so that a batch in doubt may be doubled."""
    return [load.name for load in loads if load.story.epochs]


def maker_of(client: str, folder: Path) -> MakeLoad:
    if client == "librdkafka":
        return ConfluentLoad
    if client == "aiokafka":
        return AioLoad
    class_path = java_class_path(folder)
    if class_path is None:
        pytest.skip("kafka-clients needs a JDK and Maven, and its jars")

    return partial(JavaLoad, class_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_flaps_notice_a_leader_as_it_was() -> None:
    """It looked at the ISR before it looked for originals, and failed who waited."""
    with altered("slow-link", "availability-first", "early-answers", "gaps"):
        loads, verdict = flap_a_mutant()
    assert new_epochs(loads)
    assert verdict.twice


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_flaps_notice_that_gaps_are_out_of_order() -> None:
    """Nothing is doubled as long as nothing else is in doubt: librdkafka begins a new epoch."""
    with altered("slow-link", "gaps"):
        loads, _ = flap_a_mutant()
    assert new_epochs(loads)


def flap_a_mutant() -> tuple[list[Load], Verdict]:
    with flapping_cluster() as cluster:
        create_topics(cluster)
        loads: list[Load] = [
            ConfluentLoad(
                f"slow-{number}", cluster.bootstrap, list(TOPICS)[number % 2 :], SLOW_S, False
            )
            for number in range(6)
        ]
        return loads, flap_under(cluster, loads, lambda flaps: flaps.pauses(30))
