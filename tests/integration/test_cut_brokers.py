"""Links between brokers cut in one direction or both, while both of them see the quorum.

Real voters and brokers in network namespaces: two hosts lose each other, and both still reach the
third, where the quorum's leader is. So nobody loses its session: only replication suffers.
"""

import json
from collections.abc import Iterator

import pytest

from tests.support.deployment import Deployment, deployment
from tests.support.network_lab import why_not
from tests.support.quorum_console import start_load, stop_load, wait_for_records
from tests.support.three_hosts import CONSOLE, HOSTS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC, PARTITIONS = "events", 3
LAG_TIME = '"replica.lag.time.max.ms" = 2000'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Three brokers, and a producer that waits for all of the ISR."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("brokers")
    with deployment(folder, brokers=True, broker_settings=(LAG_TIME,)) as deployed:
        deployed.wait_until(lambda: len(status(deployed).get("brokers", ())) == 3, "brokers")
        assert TOPIC in deployed.hosts.run_step("check", CONSOLE)
        deployed.console.call(start_load, deployed.hosts.bootstrap, TOPIC, PARTITIONS)
        yield deployed
        stopped = deployed.console.call(stop_load, deployed.hosts.bootstrap, TOPIC, PARTITIONS)
        assert stopped > 100, "every acknowledged record was read"


def status(deployed: Deployment) -> dict[str, list[object]]:
    """As an administrator sees it; nothing while nobody answers."""
    command = ["quorate", "status", "--bootstrap-server", deployed.hosts.bootstrap, "--json"]
    try:
        found: dict[str, list[object]] = json.loads(deployed.hosts.run(CONSOLE, command))
    except AssertionError:
        return {}
    return found


def is_whole(deployed: Deployment) -> bool:
    found = status(deployed)
    return found.get("under_replicated_partitions") == found.get("offline_partitions") == []


@pytest.mark.parametrize("ways", [(0,), (1,), (0, 1)], ids=["one way", "the other way", "both"])
def test_scenario_20_brokers_that_cannot_hear_each_other_lose_nothing_and_go_on(
    cluster: Deployment, ways: tuple[int, ...]
) -> None:
    """The ISRs shrink to those that hear their leader, producers go on, and all come back."""
    leader = cluster.wait_until_whole()
    cluster.wait_until(lambda: is_whole(cluster), "every replica in sync")
    apart = [host for host in HOSTS if host != leader]
    try:
        for way in ways:
            cluster.lab.cut_one_way(apart[way], apart[1 - way])
        cluster.wait_until(lambda: not is_whole(cluster), "an ISR without whom it does not hear")
        cluster.console.call(wait_for_records, 20)
    finally:
        cluster.lab.heal()
    cluster.wait_until(lambda: is_whole(cluster), "every replica in sync again")
    cluster.console.call(wait_for_records, 20)
