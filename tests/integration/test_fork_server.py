"""A node that was forked is what a started one is: its command line, its files, its end."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quorate.cluster.fork_server.command_line import CAPACITY_BYTES
from quorate.cluster.fork_server.fork_servers import (
    KINDS,
    LOST_EXIT_CODE,
    ForkServer,
    ForkServers,
    close_fork_servers,
    spawn_forked,
)
from quorate.cluster.layout import Node, plan_cluster, write_config
from quorate.cluster.processes import ChildProcess, command_line, is_ours, send, wait_gone
from quorate.cluster.settings import check_settings
from tests.support.own_interpreter import run_in_own_interpreter
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _servers_of_this_environment() -> None:
    """End servers that started before another test changed the environment: they fork nothing."""
    close_fork_servers()


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


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    made = ForkServers()
    yield made
    made.close()


def start(servers: ForkServers, node: Node) -> ChildProcess:
    return servers.spawn(node, sys.executable, attached=True)


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
        "quorate.cluster.fork_server.fork_servers.command_line",
        lambda *_, **__: ["x" * 2 * CAPACITY_BYTES, "-m", "quorate.cli.main"],
    )
    server = ForkServer("quorum")
    child = server.fork(voter, attached=True)
    assert child.wait() == 1
    end(child)
    server.close()
    assert "there is room for" in voter.log_path.read_text()


def test_a_killed_fork_server_is_replaced_and_its_nodes_go_on(
    voter: Node, servers: ForkServers
) -> None:
    first = start(servers, voter)
    killed = parent_of(first.pid)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: parent_of(first.pid) != killed, "the end of the fork server")
    second = start(servers, voter)
    assert first.poll() is None
    assert parent_of(second.pid) not in (killed, parent_of(first.pid), os.getpid())
    for child in (first, second):
        os.kill(child.pid, signal.SIGKILL)
    assert first.wait() == first.poll() == LOST_EXIT_CODE
    assert second.wait() == -signal.SIGKILL
    end(first)
    end(second)


def test_an_interrupted_request_does_not_leave_its_answer_to_the_next_one(
    voter: Node, servers: ForkServers
) -> None:
    child = start(servers, voter)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(parent_of(child.pid), signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            start(servers, voter)
    finally:
        signal.signal(signal.SIGALRM, before)
        os.kill(parent_of(child.pid), signal.SIGCONT)
    next_child = start(servers, voter)
    assert next_child.pid != child.pid
    end(next_child)
    end(child)


def test_threads_that_start_nodes_at_once_have_one_server(
    tmp_path: Path, servers: ForkServers
) -> None:
    settings = check_settings({"security.protocol": "PLAINTEXT"})
    nodes = plan_cluster(
        tmp_path, voters=3, brokers=0, port=0, settings=settings, cluster_id="threads"
    )
    for node in nodes:
        write_config(node)
    with ThreadPoolExecutor(len(nodes)) as threads:
        children = list(threads.map(lambda node: start(servers, node), nodes))
    assert len({parent_of(child.pid) for child in children}) == 1
    for node, child in zip(nodes, children, strict=True):
        assert is_ours(child.pid, node.config_path)
        end(child)


def test_servers_end_although_a_forked_process_holds_their_sockets(
    voter: Node, servers: ForkServers
) -> None:
    end(start(servers, voter))
    # As with os.fork, which a process with threads should not call.
    copies = [os.dup(server._requests.fileno()) for server in servers._servers.values()]
    servers.close()
    for copy in copies:
        os.close(copy)


def start_in_a_fork(voter: Node) -> None:
    """Start a node, and one from a fork of this process, which has servers of its own."""
    first = spawn_forked(voter, sys.executable, attached=True)
    pid = os.fork()
    child = spawn_forked(voter, sys.executable, attached=True)
    assert (parent_of(child.pid) == parent_of(first.pid)) == (pid != 0)
    end(child)
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        end(first)


def test_a_fork_of_this_process_has_servers_of_its_own(voter: Node) -> None:
    run_in_own_interpreter(start_in_a_fork, voter)


def test_a_detached_node_reads_nothing_and_outlives_its_fork_server(
    voter: Node, servers: ForkServers
) -> None:
    child = servers.spawn(voter, sys.executable, attached=False)
    assert parent_of(child.pid) != os.getpid()
    shown = Path(f"/proc/{child.pid}/cmdline").read_text().rstrip("\0").split("\0")
    assert shown == command_line(voter, sys.executable, attached=False)
    assert Path(f"/proc/{child.pid}/fd/0").readlink() == Path(os.devnull)
    servers.close()
    wait_until(lambda: "voter 1 of 1 ready" in voter.log_path.read_text(), "the start of the voter")
    assert send(child.pid, voter.config_path, signal.SIGTERM)
    assert wait_gone([(child.pid, voter.config_path)], timeout_ms=20_000) == []
    assert child.wait() == LOST_EXIT_CODE


def test_servers_that_were_loaded_before_the_environment_changed_are_replaced(
    voter: Node, servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.load()
    early = servers._servers["quorum"]._process.pid
    monkeypatch.setenv("QUORATE_TEST_CHANGES_THE_ENVIRONMENT", "2")
    child = start(servers, voter)
    assert parent_of(child.pid) not in (early, os.getpid())
    end(child)


def test_servers_that_still_load_their_code_end_at_once(servers: ForkServers) -> None:
    servers.load()
    loading = [server._process.pid for server in servers._servers.values()]
    assert len(loading) == len(KINDS)
    servers.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in loading)
