"""Spark over the deployment: executors on the hosts of the brokers, and links cut in mid-query.

Three hosts in network namespaces, each with a voter and a broker as ``docs/DEPLOY.md`` says. Host 1
has Spark's standalone master, the others a worker each, and the driver is on a fourth. Every query
reads a topic that plain, idempotent and transactional producers have written, and its result is
exact: the count, the sum of the offsets, how many different offsets there are, and the sum of
checksums over offset and value, each by partition.
"""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support import spark_driver
from tests.support.checked_records import Plan, Sums, fill, leaders_of
from tests.support.deployment import Deployment, deployment
from tests.support.network_console import Console
from tests.support.network_lab import address_of, why_not
from tests.support.spark_hosts import WORKER_HOSTS, SparkHosts
from tests.support.three_hosts import CLUSTER_PORTS, CONSOLE, HOSTS
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

BARE_HOST: Final = 4
"""A host without a broker."""
LARGE: Final = Plan(
    topic="large",
    leaders=(1, 2, 3, 1, 2, 3),
    brokers=HOSTS,
    record_bytes=1_000,
    # Each far more than all buffers on the way hold. The largest of each leader is read first, so
    # one that host 1 leads is always among the first.
    records=(5_000, 4_500, 4_000, 3_500, 3_500, 3_500),
)
OF_ONE_LEADER: Final = Plan(
    topic="of-one-leader",
    leaders=(1, 1, 1, 1),
    brokers=HOSTS,
    record_bytes=1_000,
    records=(3_500,) * 4,
)
SESSION_TIMEOUT_MS: Final = 4_000
"""Long enough for a machine that runs all hosts and Spark at once."""
GRPC: Final = [f"{address_of(host)}:{CLUSTER_PORTS['broker']}" for host in HOSTS]
BOUND_S: Final = 45.0
"""From a fault to the result of the query. Most of it is for the rest of the query: the source is
silent for 5 s at most before a task goes on elsewhere."""
WORKER_LOST_BOUND_S: Final = 90.0
"""Spark runs the tasks of a lost executor again, one after the other on the core that is left."""

_logger = logging.getLogger(__name__)


@dataclass
class Running:
    """Quorate, Spark and the driver."""

    deployed: Deployment
    spark: SparkHosts
    driver: Console
    expected: dict[str, dict[int, Sums]]
    """By topic and partition."""

    def leaders(self, asked: int, plan: Plan = LARGE) -> list[int]:
        """The leader of each partition, as the broker of a host knows it."""
        address = f"{address_of(asked)}:{CLUSTER_PORTS['broker']}"
        found = self.deployed.console.call(leaders_of, address, plan.topic)
        return [found.get(partition, -1) for partition in range(len(plan.leaders))]

    def check_exact(self, outcome: spark_driver.Outcome, plan: Plan = LARGE) -> None:
        """Every committed record once, each with its own value."""
        found = {partition: sums for partition, (sums, _) in outcome.sums.items()}
        assert found == self.expected[plan.topic]
        for sums, offsets in outcome.sums.values():
            assert offsets == sums.records, "an offset was read twice"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        deployed = stack.enter_context(
            deployment(
                folder,
                brokers=True,
                broker_settings=('"log.flush" = "os"',),
                more_hosts=[BARE_HOST],
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
        )
        spark = stack.enter_context(SparkHosts(deployed.lab, folder / "spark"))
        driver = stack.enter_context(Console(deployed.lab.namespace(CONSOLE)))
        _logger.info("the cluster and Spark are up")
        bootstrap = deployed.hosts.bootstrap
        filling = {
            plan.topic: deployed.console.begin(fill, bootstrap, GRPC, plan)
            for plan in (LARGE, OF_ONE_LEADER)
        }
        settings = {**spark.driver_settings, "spark.cores.max": "3"}
        driver.begin(spark_driver.start_session, spark.master, settings).result(timeout=240)
        _logger.info("the session is open")
        expected = {topic: sums.result(timeout=300) for topic, sums in filling.items()}
        _logger.info("the topics are filled")
        yield Running(deployed, spark, driver, expected)


class HeldUp:
    """A query whose tasks wait at their first rows; a context manager, which opens the gate."""

    def __init__(self, running: Running, gate: Path, plan: Plan = LARGE) -> None:
        gate.mkdir()
        self._options = {
            "kafka.bootstrap.servers": running.deployed.hosts.bootstrap,
            "subscribe": plan.topic,
        }
        self._running = running
        self._gate = gate
        self._query: Future[spark_driver.Outcome]

    def __enter__(self) -> "HeldUp":
        self._query = self._running.driver.begin(
            spark_driver.read_through_gate, self._options, str(self._gate)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.open()

    def open(self) -> None:
        (self._gate / "open").touch()

    def wait_until_reading(self, tasks: int) -> dict[int, int]:
        """Until so many tasks have rows: the host that reads each partition."""

        def reached() -> dict[int, int] | None:
            assert not self._query.done(), self._query.exception() or "the query ended too early"
            marks = [mark.name.split("@") for mark in self._gate.glob("*@*")]
            found = {int(partition): int(host) for partition, host in marks}
            return found if len(found) >= tasks else None

        return wait_until(reached, lambda: f"rows\n{self._running.spark.logs()}", timeout_s=120)

    def result(self, bound_s: float) -> spark_driver.Outcome:
        """Open the gate; what the query has found, within a time."""
        began_s = time.monotonic()
        self.open()
        outcome = self._query.result(timeout=bound_s)
        _logger.info("done %.1f s after the gate was opened", outcome.ended_s - began_s)
        return outcome


@pytest.fixture(autouse=True)
def _whole_again(running: Running) -> Iterator[None]:
    """Links, leaders and workers are as they were."""
    yield
    running.deployed.lab.heal()
    if running.spark.is_running(BARE_HOST):
        running.spark.kill_worker(BARE_HOST)
    for host in WORKER_HOSTS:
        if not running.spark.is_running(host):
            running.spark.start_worker(host)
    elect = "quorate elect-leaders --election-type preferred --all-topic-partitions"

    def is_whole() -> bool:
        command = [*elect.split(), "--bootstrap-server", running.deployed.hosts.bootstrap]
        try:
            running.deployed.hosts.run(CONSOLE, command)
        except AssertionError:
            return False
        return all(
            running.leaders(host, plan) == list(plan.leaders)
            for host in HOSTS
            for plan in (LARGE, OF_ONE_LEADER)
        )

    running.deployed.wait_until(is_whole, "the preferred leaders")


def test_d2_executors_of_several_hosts_read_every_record_once(
    running: Running, tmp_path: Path
) -> None:
    with HeldUp(running, tmp_path / "gate") as query:
        readers = query.wait_until_reading(2)
        assert set(readers.values()) == set(WORKER_HOSTS)
        running.check_exact(query.result(BOUND_S))


def test_d2_a_leader_whose_link_is_cut_in_mid_query_costs_nothing(
    running: Running, tmp_path: Path
) -> None:
    """Both ways, from the other brokers and from the executors: another broker leads then."""
    with HeldUp(running, tmp_path / "gate") as query:
        readers = query.wait_until_reading(2)
        assert 1 in {LARGE.leaders[partition] for partition in readers}
        running.deployed.lab.unplug(1)
        running.check_exact(query.result(BOUND_S))
    led = [partition for partition, leader in enumerate(LARGE.leaders) if leader == 1]
    wait_until(
        lambda: not {running.leaders(2)[partition] for partition in led} & {1, -1},
        "other leaders",
    )


def test_d2_an_executor_that_alone_loses_the_leader_reads_from_a_follower(
    running: Running, tmp_path: Path
) -> None:
    """On a host without a broker: the cluster notices nothing, and the leader stays."""
    running.spark.start_worker(BARE_HOST)
    with HeldUp(running, tmp_path / "gate", OF_ONE_LEADER) as query:
        assert BARE_HOST in query.wait_until_reading(3).values()
        running.deployed.lab.cut(BARE_HOST, 1)
        running.check_exact(query.result(BOUND_S), OF_ONE_LEADER)
        assert running.leaders(2, OF_ONE_LEADER) == list(OF_ONE_LEADER.leaders)


def test_d2_hosts_that_lose_each_other_read_on(running: Running, tmp_path: Path) -> None:
    """The hosts of an executor and of the leader that it reads from, with the broker on each."""
    with HeldUp(running, tmp_path / "gate") as query:
        readers = query.wait_until_reading(2)
        reader = next(host for at, host in readers.items() if LARGE.leaders[at] == 1)
        running.deployed.lab.cut(reader, 1)
        running.check_exact(query.result(BOUND_S))


def test_d2_a_worker_killed_in_mid_query_costs_nothing(running: Running, tmp_path: Path) -> None:
    """Spark runs its tasks again on the other worker."""
    with HeldUp(running, tmp_path / "gate") as query:
        query.wait_until_reading(2)
        running.spark.kill_worker(WORKER_HOSTS[1])
        running.check_exact(query.result(WORKER_LOST_BOUND_S))
