"""Three hosts as ``docs/DEPLOY.md`` sets them up and looks after them, chapter by chapter.

Real processes in network namespaces with the addresses of the guide, mutual TLS, the configuration
and the commands of ``deploy/``. Cut links lose packets silently, also in one direction only.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support import guide
from tests.support.deployment import deployment
from tests.support.network_lab import why_not
from tests.support.quorum_console import (
    start_load,
    start_writer,
    stop_load,
    stop_writer,
    wait_for_records,
    wait_for_writes,
    written,
)
from tests.support.three_hosts import CONSOLE, HOSTS, ThreeHosts
from tests.support.waiting import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC, PARTITIONS = "events", 3


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
        deployed.leader(*others)
        console.call(wait_for_writes, 20)
        assert not deployed.serves_reads(leader), "a minority serves no linearizable read"
        alone = deployed.seen(leader)
        assert alone is not None
        assert alone.leader_id == 0
        console.call(wait_for_records, 20)
        again = deployed.seen(leader)
        assert again is not None
        assert again.commit_offset == alone.commit_offset, "a minority makes no progress"
        successor, elected = deployed.leader(*others), deployed.term()
        assert elected > term
        lab.heal()
        assert deployed.wait_until_whole() == successor
        assert deployed.term() == elected, "who comes back disturbs nobody"
        console.call(wait_for_records, 20)

        deaf = next(host for host in HOSTS if host != successor)
        lab.cut_one_way(successor, deaf)
        let_time_pass(1.5, "who hears no leader stands for election meanwhile")
        console.call(wait_for_writes, 20)
        lab.heal()
        assert deployed.wait_until_whole() == successor
        assert deployed.term() == elected, "who cannot hear the leader disturbs nobody"

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
def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    with deployment(tmp_path, brokers=True) as deployed:
        hosts, console = deployed.hosts, deployed.console
        deployed.wait_until(lambda: _brokers(hosts) == 3, "three brokers")
        hosts.run_step("check", CONSOLE)
        console.call(start_writer)
        console.call(start_load, hosts.bootstrap, TOPIC, PARTITIONS)
        console.call(wait_for_records, 20)
        for host in HOSTS:
            if deployed.leader() == host:
                other = host % 3 + 1
                script = guide.step("transfer").replace("--to 2", f"--to {other}")
                assert f"voter {other} leads" in hosts.run_script(script, CONSOLE)
            assert hosts.stop("quorum", host) == 0
            console.call(wait_for_writes, 20)
            hosts.start("quorum", host)
            deployed.wait_until_whole()
        for host in HOSTS:
            assert hosts.stop("broker", host) == 0
            console.call(wait_for_records, 20)
            hosts.start("broker", host)
            deployed.wait_until(lambda: _brokers(hosts) == 3, "the broker to be back")
            deployed.wait_until(lambda: "none" in _under_replicated(hosts), "whole ISRs")
        assert console.call(written).sessions_lost == 0
        assert console.call(stop_writer) == 0
        assert console.call(stop_load, hosts.bootstrap, TOPIC, PARTITIONS) > 100


@pytest.mark.slow
def test_a_dead_voter_is_replaced_as_the_guide_says(tmp_path: Path) -> None:
    with deployment(tmp_path, brokers=False) as deployed:
        hosts, console = deployed.hosts, deployed.console
        console.call(start_writer)
        console.call(wait_for_writes, 20)
        hosts.kill("quorum", 2)
        shutil.rmtree(hosts.data_dir("quorum", 2))
        deployed.leader(1, 3)
        hosts.run_step("remove-dead-voter", CONSOLE)
        hosts.start("quorum", 2)
        assert "was added" in hosts.run_step("add-voter-again", CONSOLE)
        deployed.wait_until_whole()
        hosts.kill("quorum", 1)
        assert deployed.leader(2, 3)
        console.call(wait_for_writes, 20)  # The new voter's vote counts.
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
        assert re.search(r"\byounger-0 .*: the quorum does not know these partitions", said)
        assert not re.search(r"\byounger-0 .*: not assigned to this broker, deleting", said)


def _under_replicated(hosts: ThreeHosts) -> str:
    status = hosts.run(CONSOLE, ["quorate", "status", "--bootstrap-server", hosts.bootstrap])
    return next(line for line in status.splitlines() if line.startswith("under-replicated"))
