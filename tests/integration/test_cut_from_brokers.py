"""A broker that only the quorum and clients reach: partitions go on within 10 s.

Real brokers and voters on hosts of their own, with the default time limits. The producer is an
unmodified client with its defaults, so it also shows that a leader that is over answers it.
"""

from collections.abc import Iterator

import pytest

from bench._faults import FAULTS, Fault
from bench.availability import Cluster
from tests.support.network_lab import why_not
from tests.support.six_hosts import six_hosts

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

BOUND_S = 10.0
CUTS = [fault for fault in FAULTS if "cut from brokers" in fault.name or "one broker" in fault.name]
IMPAIRMENTS = [fault for fault in FAULTS if fault.victim == "links of brokers"]
SHORT_S = 5.0
"""A link that counts as cut costs more."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with six_hosts(tmp_path_factory.mktemp("brokers")) as deployed:
        cluster = Cluster(deployed)
        cluster.begin()
        yield cluster
        cluster.end()


def named(fault: Fault) -> str:
    return f"{fault.name}, {fault.victim}"


@pytest.mark.parametrize("fault", CUTS, ids=named)
def test_partitions_go_on_within_ten_seconds(cluster: Cluster, fault: Fault) -> None:
    stalls = cluster.measure(fault)
    assert stalls["stall s"] < BOUND_S, stalls
    assert stalls["default client s"] < BOUND_S, stalls


@pytest.mark.parametrize("fault", IMPAIRMENTS, ids=named)
def test_slow_and_lossy_links_are_not_taken_for_cut_ones(cluster: Cluster, fault: Fault) -> None:
    cluster.wait_until_whole()
    before = cluster.leaders()
    stalls = cluster.measure(fault)
    assert stalls["stall s"] < SHORT_S, stalls
    assert {n: leader for n, (leader, _) in cluster.leaders().items()} == {
        n: leader for n, (leader, _) in before.items()
    }
