"""A node that was forked is what a started one is: its command line, its files, its end."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.cluster.layout import Node, plan_cluster, write_config
from quorate.cluster.processes import ChildProcess, command_line, is_ours
from quorate.cluster.settings import check_settings
from quorate.testing.fork_server.command_line import CAPACITY_BYTES
from quorate.testing.fork_server.fork_servers import ForkServer, spawn_forked
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def voter(tmp_path: Path) -> Node:
    """A voter that starts without certificates and without others."""
    settings = check_settings({"security.protocol": "PLAINTEXT"})
    node = plan_cluster(
        tmp_path, voters=1, brokers=0, port=0, settings=settings, cluster_id="forked"
    )[0]
    write_config(node)
    return node


def end(child: ChildProcess) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


@pytest.fixture
def forked(voter: Node) -> Iterator[ChildProcess]:
    child = spawn_forked(voter, sys.executable, attached=True)
    yield child
    end(child)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_forked_node_shows_its_own_command_line_at_once(
    voter: Node, forked: ChildProcess
) -> None:
    shown = Path(f"/proc/{forked.pid}/cmdline").read_text().rstrip("\0").split("\0")
    assert shown == command_line(voter, sys.executable, attached=True)
    assert is_ours(forked.pid, voter.config_path)
    assert parent_of(forked.pid) != os.getpid()


def test_a_forked_node_has_its_own_session_folder_and_log(
    voter: Node, forked: ChildProcess
) -> None:
    assert os.getsid(forked.pid) == forked.pid
    assert Path(f"/proc/{forked.pid}/cwd").readlink() == voter.folder
    for output in (1, 2):
        assert Path(f"/proc/{forked.pid}/fd/{output}").readlink() == voter.log_path


def test_a_forked_node_ends_when_its_standard_input_is_closed(
    voter: Node, forked: ChildProcess
) -> None:
    wait_until(lambda: "voter 1" in voter.log_path.read_text(), "the voter's first words")
    assert forked.poll() is None
    assert forked.stdin is not None
    forked.stdin.close()
    assert forked.wait() == 0
    assert forked.poll() == 0


def test_a_killed_node_has_the_signal_as_exit_code(forked: ChildProcess) -> None:
    os.kill(forked.pid, signal.SIGKILL)
    assert forked.wait() == -signal.SIGKILL


def test_a_node_that_fails_tells_why_in_its_log(voter: Node) -> None:
    voter.config_path.write_text("no configuration")
    child = spawn_forked(voter, sys.executable, attached=True)
    assert child.wait() == 2
    end(child)
    assert str(voter.config_path) in voter.log_path.read_text()


def test_a_node_with_another_environment_is_started_and_not_forked(
    voter: Node, monkeypatch: pytest.MonkeyPatch, forked: ChildProcess
) -> None:
    monkeypatch.setenv("QUORATE_TEST_CHANGES_THE_ENVIRONMENT", "1")
    child = spawn_forked(voter, sys.executable, attached=True)
    assert parent_of(child.pid) == os.getpid()
    end(child)


def test_a_command_line_without_room_is_refused_in_the_nodes_log(
    voter: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "quorate.testing.fork_server.fork_servers.command_line",
        lambda *_, **__: ["x" * 2 * CAPACITY_BYTES, "-m", "quorate.cli.main"],
    )
    server = ForkServer("quorum")
    child = server.fork(voter)
    assert child.wait() == 1
    end(child)
    server.close()
    assert "there is room for" in voter.log_path.read_text()
