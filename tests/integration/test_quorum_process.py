"""One voter as a process: how it starts, stops, and what it says when it cannot."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.quorum_errors import QuorumUnavailable
from tests.integration.quorum_writes import write
from tests.support.quorum_cluster import QuorumCluster, connected, free_ports

pytestmark = pytest.mark.integration


def run_voter(config: Path) -> tuple[int, str]:
    """Exit code and standard error of a voter that is expected to refuse."""
    done = subprocess.run(
        [sys.executable, "-m", "quorate.quorum", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.strip()


def complaint(stderr: str) -> str:
    """The one line that is meant for people."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("quorate quorum voter: ")]
    assert "Traceback" not in stderr
    return line


def test_sigterm_stops_a_voter_cleanly(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        assert quorum.stop(1) == 0


def test_wrong_configuration_is_exit_2(tmp_path: Path) -> None:
    quorum = QuorumCluster(tmp_path, voters=1, settings={"node.idd": 1})
    code, stderr = run_voter(quorum.write_config(1))
    assert code == 2
    assert "did you mean node.id?" in complaint(stderr)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"days": 0}, "expired on"),
        ({"names": ["voter.quorate", "voter-2.quorate"]}, "not of voter 1"),
        ({"names": ["broker-1.quorate"]}, "one with the name voter.quorate is needed"),
    ],
)
def test_wrong_certificate_is_exit_2(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    quorum = QuorumCluster(tmp_path, voters=1, secure=True)
    assert quorum.authority is not None
    issued: dict[str, Any] = {"names": ["voter.quorate", "voter-1.quorate"], **change}
    quorum.authority.issue("voter-1", **issued)
    code, stderr = run_voter(quorum.write_config(1))
    assert code == 2
    assert said in complaint(stderr)
    assert "ssl.keystore.location=" in complaint(stderr)


@pytest.mark.parametrize("which", ["raft", "gRPC"])
def test_taken_port_is_one_clear_line(tmp_path: Path, which: str) -> None:
    quorum = QuorumCluster(tmp_path, voters=1)
    host, _, port = quorum.address(1).partition(":")
    address = quorum.raft_address(1) if which == "raft" else (host, int(port))
    with socket.create_server(address):
        code, stderr = run_voter(quorum.write_config(1))
    assert code == 1
    assert f"cannot listen on {address[0]}:{address[1]} ({which})" in complaint(stderr)


def test_foreign_data_folder_is_refused(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        quorum.stop(1)
        quorum.cluster_id = "another"
        code, stderr = run_voter(quorum.write_config(1))
    assert code == 1
    assert "cluster_id=test-cluster, not cluster_id=another" in complaint(stderr)


def test_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        code, stderr = run_voter(quorum.write_config(1))
    assert code == 1
    assert "used by another process" in complaint(stderr)


async def test_p9_noise_on_the_raft_port_harms_nobody(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        for voter_id in quorum.voter_ids:
            for noise in (
                b"\x80\x02}q\x00.",
                b"GET / HTTP/1.1\r\n\r\n",
                b"\x00\x00\x00\x02\xff\xff",
            ):
                with socket.create_connection(quorum.raft_address(voter_id)) as sock:
                    sock.sendall(noise)
        async with connected(quorum) as client:
            await write(client, 50)
        assert all(process.poll() is None for process in quorum.processes.values())


async def test_absent_quorum_is_named(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    client = QuorumClient([address], description="test", session_timeout_ms=6_000)
    started = time.monotonic()
    with pytest.raises(QuorumUnavailable, match=address):
        await client.start(deadline_ms=500)
    assert time.monotonic() - started < 5
    await client.close()


async def test_client_that_starts_first_waits_for_the_quorum(tmp_path: Path) -> None:
    quorum = QuorumCluster(tmp_path, voters=1)
    client = QuorumClient(quorum.addresses, description="test", session_timeout_ms=6_000)
    quorum.start(1)
    try:
        await client.start(deadline_ms=30_000)
        await write(client)
        await client.close()
    finally:
        quorum.stop_all()
