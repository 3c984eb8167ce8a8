"""Every kind of cut between three hosts: in both directions, in one, of one link or of all.

Real voters in network namespaces, as ``docs/DEPLOY.md`` sets them up. Cuts lose packets silently.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.deployment import Deployment, deployment
from tests.support.network_lab import NetworkLab, why_not
from tests.support.quorum_console import start_writer, stop_writer, wait_for_writes, written
from tests.support.three_hosts import HOSTS
from tests.support.waiting import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

Cut = Callable[[NetworkLab, int, list[int]], None]
"""Cuts links, given the leader's host and the two others."""


def _leader_unplugged(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.unplug(leader)


def _follower_unplugged(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.unplug(others[0])


def _leader_cut_off(lab: NetworkLab, leader: int, others: list[int]) -> None:
    for other in others:
        lab.cut(leader, other)


def _leader_mute(lab: NetworkLab, leader: int, others: list[int]) -> None:
    for other in others:
        lab.cut_one_way(leader, other)


def _leader_deaf(lab: NetworkLab, leader: int, others: list[int]) -> None:
    for other in others:
        lab.cut_one_way(other, leader)


def _follower_cut_off(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.cut(others[0], leader)
    lab.cut(others[0], others[1])


def _follower_mute(lab: NetworkLab, leader: int, others: list[int]) -> None:
    for other in (leader, others[1]):
        lab.cut_one_way(others[0], other)


def _follower_deaf(lab: NetworkLab, leader: int, others: list[int]) -> None:
    for other in (leader, others[1]):
        lab.cut_one_way(other, others[0])


def _followers_apart(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.cut(*others)


def _leader_and_one_follower_apart(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.cut(leader, others[0])


def _leader_mute_to_one(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.cut_one_way(leader, others[0])


def _leader_deaf_to_one(lab: NetworkLab, leader: int, others: list[int]) -> None:
    lab.cut_one_way(others[0], leader)


def _leader_mute_to_one_and_deaf_to_the_other(
    lab: NetworkLab, leader: int, others: list[int]
) -> None:
    """It hears one follower and is heard by the other, so it has no majority."""
    lab.cut_one_way(leader, others[0])
    lab.cut_one_way(others[1], leader)


CUTS: dict[Cut, int] = {
    _leader_unplugged: 1,
    _leader_cut_off: 1,
    _leader_mute: 1,
    _leader_deaf: 1,
    _leader_mute_to_one_and_deaf_to_the_other: 1,
    _follower_unplugged: 0,
    _follower_cut_off: 0,
    _follower_mute: 0,
    _follower_deaf: 0,
    _followers_apart: 0,
    _leader_and_one_follower_apart: 0,
    _leader_mute_to_one: 0,
    _leader_deaf_to_one: 0,
}
"""Cut → how many elections it may cost: one if the leader has lost its majority, else none."""


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The three voters, and a client that writes all the time."""
    if reason := why_not():
        pytest.skip(reason)
    with deployment(tmp_path_factory.mktemp("quorum"), brokers=False) as deployed:
        deployed.console.call(start_writer)
        yield deployed
        assert deployed.console.call(stop_writer) == 0, "acknowledged writes are lost"


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__.strip("_"))
def test_p8_a_cut_costs_no_more_elections_than_it_must(quorum: Deployment, cut: Cut) -> None:
    """And the quorum goes on, one leader stays, and healing costs nothing at all."""
    leader = quorum.wait_until_whole()
    term = quorum.term()
    others = [host for host in HOSTS if host != leader]
    try:
        cut(quorum.lab, leader, others)
        quorum.console.call(wait_for_writes, 20)  # A majority is connected.
        settled = quorum.term_among(HOSTS)
        assert settled == term + CUTS[cut]
        let_time_pass(3, "who cannot hear the leader stands for election meanwhile")
        quorum.console.call(wait_for_writes, 20)
        assert quorum.term_among(HOSTS) == settled, "the leader stays, whoever cannot hear it"
    finally:
        quorum.lab.heal()
    successor = quorum.wait_until_whole()
    assert (successor == leader) == (CUTS[cut] == 0)
    let_time_pass(1, "who comes back might stand for election meanwhile")
    assert quorum.term() == settled, "who comes back disturbs nobody"
    assert quorum.console.call(written).sessions_lost == 0


def test_a_slow_and_lossy_network_deposes_nobody(quorum: Deployment) -> None:
    leader, term = quorum.wait_until_whole(), quorum.term()
    if reason := quorum.lab.impair("delay", "10ms", "5ms", "loss", "1%"):
        pytest.skip(reason)
    try:
        quorum.console.call(wait_for_writes, 100)
        let_time_pass(5, "who hears too little of the leader would stand for election")
        assert (quorum.wait_until_whole(), quorum.term()) == (leader, term)
    finally:
        quorum.lab.heal()
