"""Three hosts as ``docs/DEPLOY.md`` sets them up, and what becomes of them when links are cut.

Real processes in network namespaces with the addresses of the guide, mutual TLS, the configuration
and the commands of ``deploy/``. Cut links lose packets silently, also in one direction only.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import guide
from tests.support.network_console import Console
from tests.support.network_lab import NetworkLab, why_not
from tests.support.quorum_console import (
    Seen,
    linearizable_read,
    open_desk,
    quorum_status,
    start_load,
    start_writer,
    stop_load,
    stop_writer,
    wait_for_records,
    wait_for_writes,
    written,
)
from tests.support.three_hosts import CONSOLE, HOSTS, ThreeHosts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC, PARTITIONS = "events", 3
PATIENCE_S = 30.0

# Shorter than in production, so that a test need not wait for it.
BROKER_SETTINGS = ('"broker.session.timeout.ms" = 1500',)


class Deployment:
    """The three hosts, and a console from which clients and administrators work."""

    def __init__(self, hosts: ThreeHosts, console: Console) -> None:
        self.hosts = hosts
        self.console = console
        self.lab = hosts.lab

    def seen(self, host: int) -> Seen | None:
        """The state of the quorum as the host's voter sees it."""
        return self.console.call(quorum_status, self.hosts.voter(host))

    def leader(self, *among: int) -> int:
        """Host of the voter that says it leads, of ``among`` or all."""
        found: list[int] = []

        def found_one() -> bool:
            for host in among or HOSTS:
                seen = self.seen(host)
                if seen is not None and seen.leader_id == host:
                    found.append(host)
                    return True
            return False

        self.wait_until(found_one, f"a leader among {among or HOSTS}")
        return found[0]

    def term(self) -> int:
        seen = self.seen(self.leader())
        assert seen is not None
        return seen.term

    def term_among(self, hosts: Iterable[int]) -> int:
        """The highest term that a voter knows of."""
        return max(seen.term for host in hosts if (seen := self.seen(host)) is not None)

    def wait_until_whole(self) -> int:
        """Until all voters follow one leader and hear from it; who that is."""
        leaders: set[int] = set()

        def agree() -> bool:
            seen = [self.seen(host) for host in HOSTS]
            leaders.clear()
            leaders.update(0 if each is None else each.leader_id for each in seen)
            return len(leaders) == 1 and 0 not in leaders

        self.wait_until(agree, "all voters to follow one leader")
        return leaders.pop()

    def serves_reads(self, host: int) -> bool:
        """Whether the voter answers a linearizable read."""
        return self.console.call(linearizable_read, self.hosts.voter(host), 1.5) is not None

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}\n{self.hosts.logs()}")
            time.sleep(0.05)


@contextmanager
def deployment(folder: Path, *, brokers: bool) -> Iterator[Deployment]:
    """Installed, configured and started as the guide says; nothing of it is left afterwards."""
    with NetworkLab([*HOSTS, CONSOLE]) as lab:
        hosts = ThreeHosts(lab, folder, broker_settings=BROKER_SETTINGS)
        with hosts, Console(lab.namespace(CONSOLE)) as console:
            hosts.install()
            for host in HOSTS:
                hosts.start("quorum", host)
                if brokers:
                    hosts.start("broker", host)
            console.call(open_desk, str(hosts.command_config()), hosts.voters)
            deployed = Deployment(hosts, console)
            deployed.wait_until_whole()
            yield deployed


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    """Where namespaces can be made, these tests must run."""
    if reason := why_not():
        pytest.skip(reason)


def test_three_hosts_set_up_by_the_guide_survive_cut_links(tmp_path: Path) -> None:
    with deployment(tmp_path, brokers=True) as deployed:
        hosts, lab, console = deployed.hosts, deployed.lab, deployed.console
        deployed.wait_until(lambda: _brokers(hosts) == 3, "three brokers")
        assert TOPIC in hosts.run_step("check", CONSOLE)
        console.call(start_writer)
        console.call(start_load, hosts.bootstrap, TOPIC, PARTITIONS)
        console.call(wait_for_records, 20)

        leader, term = deployed.leader(), deployed.term()
        others = [host for host in HOSTS if host != leader]
        for other in others:
            lab.cut(leader, other)
        successor = deployed.leader(*others)
        assert console.call(wait_for_writes, 20)
        assert not deployed.serves_reads(leader), "a minority serves no linearizable read"
        alone = deployed.seen(leader)
        assert alone is not None
        assert alone.leader_id == 0
        console.call(wait_for_records, 20)
        again = deployed.seen(leader)
        assert again is not None
        assert again.commit_offset == alone.commit_offset, "a minority makes no progress"
        lab.heal()
        assert deployed.wait_until_whole() == successor
        assert deployed.term() == term + 1, "one election, when it was needed"
        console.call(wait_for_records, 20)

        deaf = next(host for host in HOSTS if host != successor)
        lab.cut_one_way(successor, deaf)
        time.sleep(1.5)
        assert console.call(wait_for_writes, 20)
        lab.heal()
        assert deployed.wait_until_whole() == successor
        assert deployed.term() == term + 1, "who cannot hear the leader disturbs nobody"

        assert console.call(stop_writer) == 0
        assert console.call(stop_load, hosts.bootstrap, TOPIC, PARTITIONS) > 100
        for host in HOSTS:
            assert hosts.stop("broker", host) == 0
            assert hosts.stop("quorum", host) == 0


def _brokers(hosts: ThreeHosts) -> int:
    command = ["quorate", "status", "--bootstrap-server", hosts.bootstrap, "--json"]
    try:
        return len(json.loads(hosts.run(CONSOLE, command))["brokers"])
    except AssertionError:
        return 0


# --- the guide's other chapters -----------------------------------------------------------------


@pytest.mark.slow
def test_a_dead_voter_is_replaced_as_the_guide_says(tmp_path: Path) -> None:
    with deployment(tmp_path, brokers=False) as deployed:
        hosts, console = deployed.hosts, deployed.console
        console.call(start_writer)
        assert console.call(wait_for_writes, 20)
        hosts.kill("quorum", 2)
        shutil.rmtree(hosts.data_dir("quorum", 2))
        deployed.leader(1, 3)
        hosts.run_step("remove-dead-voter", CONSOLE)
        hosts.start("quorum", 2)
        assert "was added" in hosts.run_step("add-voter-again", CONSOLE)
        deployed.wait_until_whole()
        hosts.kill("quorum", 1)
        assert deployed.leader(2, 3)
        assert console.call(wait_for_writes, 20), "the new voter's vote counts"
        assert console.call(stop_writer) == 0


@pytest.mark.slow
def test_a_wiped_voter_refuses_to_start_under_its_old_id(tmp_path: Path) -> None:
    with deployment(tmp_path, brokers=False) as deployed:
        hosts = deployed.hosts
        hosts.kill("quorum", 2)
        shutil.rmtree(hosts.data_dir("quorum", 2))
        deployed.leader(1, 3)
        hosts.start("quorum", 2)
        assert hosts.wait_for_end("quorum", 2) == 1
        assert "its disk was wiped or replaced" in hosts.log_path("quorum", 2).read_text()


@pytest.mark.slow
def test_a_destroyed_quorum_is_restored_as_the_guide_says(tmp_path: Path) -> None:
    """While brokers and a producer go on: no acknowledged record is lost, and a topic that the
    backup does not know keeps its data."""
    with deployment(tmp_path, brokers=True) as deployed:
        hosts, console = deployed.hosts, deployed.console
        deployed.wait_until(lambda: _brokers(hosts) == 3, "three brokers")
        hosts.run_step("check", CONSOLE)
        console.call(start_load, hosts.bootstrap, TOPIC, PARTITIONS)
        console.call(wait_for_records, 20)
        assert "3 partitions" in hosts.run_step("backup", CONSOLE)
        create = ["quorate", "topics", "create", "--bootstrap-server", hosts.bootstrap]
        hosts.run(CONSOLE, [*create, "--topic", "younger", "--replication-factor", "3"])

        for host in HOSTS:
            hosts.kill("quorum", host)
            shutil.rmtree(hosts.data_dir("quorum", host))
        console.call(wait_for_records, 20)
        shutil.copy(hosts.working(CONSOLE) / "quorum.backup", hosts.working(1))
        hosts.run_step("restore", 1)
        for host in HOSTS:
            hosts.start("quorum", host)
        assert deployed.leader() == 1
        hosts.run_step("add-voter-again", CONSOLE)
        third = guide.step("add-voter-again").replace("2@10.20.0.2", "3@10.20.0.3")
        hosts.run_script(third, CONSOLE)
        deployed.wait_until_whole()
        deployed.wait_until(lambda: _brokers(hosts) == 3, "the brokers at the restored quorum")
        deployed.wait_until(lambda: "none" in _under_replicated(hosts), "whole ISRs")
        console.call(wait_for_records, 50)

        hosts.kill("quorum", 1)
        deployed.leader(2, 3)
        console.call(wait_for_records, 50)
        assert console.call(stop_load, hosts.bootstrap, TOPIC, PARTITIONS) > 100
        said = "".join(hosts.log_path("broker", host).read_text() for host in HOSTS)
        assert "younger-0 is kept: the quorum does not confirm its removal" in said
        assert "younger-0 is not assigned to this broker: deleting" not in said


def _under_replicated(hosts: ThreeHosts) -> str:
    status = hosts.run(CONSOLE, ["quorate", "status", "--bootstrap-server", hosts.bootstrap])
    return next(line for line in status.splitlines() if line.startswith("under-replicated"))


# --- every kind of cut ----------------------------------------------------------------------------

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


CUTS: dict[Cut, int] = {
    _leader_unplugged: 1,
    _leader_cut_off: 1,
    _leader_mute: 1,
    _leader_deaf: 1,
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


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__.strip("_"))
def test_p8_a_cut_costs_no_more_elections_than_it_must(quorum: Deployment, cut: Cut) -> None:
    """And the quorum goes on, one leader stays, and healing costs nothing at all."""
    leader = quorum.wait_until_whole()
    term = quorum.term()
    others = [host for host in HOSTS if host != leader]
    try:
        cut(quorum.lab, leader, others)
        assert quorum.console.call(wait_for_writes, 20), "a majority is connected"
        settled = quorum.term_among(HOSTS)
        assert settled == term + CUTS[cut]
        time.sleep(3)
        assert quorum.console.call(wait_for_writes, 20)
        assert quorum.term_among(HOSTS) == settled, "the leader stays, whoever cannot hear it"
    finally:
        quorum.lab.heal()
    successor = quorum.wait_until_whole()
    assert (successor == leader) == (CUTS[cut] == 0)
    time.sleep(1)
    assert quorum.term() == settled, "who comes back disturbs nobody"
    assert quorum.console.call(written).sessions_lost == 0


@pytest.mark.slow
def test_a_slow_and_lossy_network_deposes_nobody(quorum: Deployment) -> None:
    leader, term = quorum.wait_until_whole(), quorum.term()
    if reason := quorum.lab.impair("delay", "10ms", "5ms", "loss", "1%"):
        pytest.skip(reason)
    try:
        assert quorum.console.call(wait_for_writes, 100)
        time.sleep(5)
        assert (quorum.wait_until_whole(), quorum.term()) == (leader, term)
    finally:
        quorum.lab.heal()
