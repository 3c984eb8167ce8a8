"""A quorum of real voter processes on free loopback ports: start, stop, kill, restart.

with QuorumCluster(tmp_path, voters=3) as quorum:
    client = QuorumClient(quorum.addresses, description="test", session_timeout_ms=6000)
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Self, TypeVar

import grpc

from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.fork_server.fork_servers import spawn_forked
from quorate.cluster.layout import Node, write_config
from quorate.cluster.processes import ChildProcess
from quorate.common.grpc_support.grpc_credentials import channel_credentials
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.keystore import load_security
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.voter_channels import ONLY_VOTERS
from quorate_proto.v1 import quorum_pb2 as pb
from quorate_proto.v1.quorum_pb2_grpc import QuorumStub
from tests.support.waiting import wait_until

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
T = TypeVar("T")


def admin_of(authority: CertificateAuthority) -> Security:
    """The certificates of an administrator."""
    authority.issue_admin("admin")
    return security_in(authority, "admin", Role.ADMIN)


def security_in(authority: CertificateAuthority, stem: str, role: Role) -> Security:
    """Load the keystore ``stem``.pem of the authority's folder."""
    keystore = authority.folder / f"{stem}.pem"
    return load_security("keystore", keystore, "truststore", authority.truststore, role)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with PortReservation() as reservation:
        return [reservation.claim_any() for _ in range(count)]


class QuorumCluster:
    """Voters 1 to ``voters``, with their data and logs under ``folder``."""

    def __init__(
        self,
        folder: Path,
        *,
        voters: int = 3,
        cluster_id: str = "test-cluster",
        settings: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> None:
        """``settings``: further configuration keys of every voter.

        ``secure``: mutual TLS; ``authority`` signs, ``security`` is an administrator's.
        """
        self.folder = folder
        self.cluster_id = cluster_id
        self.settings = dict(settings or {})
        self.voter_ids = list(range(1, voters + 1))
        ports = free_ports(2 * voters)
        self._raft_ports = dict(zip(self.voter_ids, ports[:voters], strict=True))
        self._grpc_ports = dict(zip(self.voter_ids, ports[voters:], strict=True))
        self._configured: dict[int, list[int]] = {}
        self.processes: dict[int, ChildProcess] = {}
        self.authority = CertificateAuthority.open(folder / "certs") if secure else None
        self.security = None if self.authority is None else admin_of(self.authority)

    @property
    def addresses(self) -> list[str]:
        """gRPC addresses of all voters, running or not."""
        return [self.address(voter_id) for voter_id in self.voter_ids]

    @property
    def bootstrap_servers(self) -> str:
        """``addresses`` as brokers have them in ``quorum.bootstrap.servers``."""
        return ",".join(self.addresses)

    def address(self, voter_id: int) -> str:
        return f"127.0.0.1:{self._grpc_ports[voter_id]}"

    def raft_address(self, voter_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._raft_ports[voter_id]

    def data_dir(self, voter_id: int) -> Path:
        return self.folder / f"voter-{voter_id}"

    def log_text(self, voter_id: int) -> str:
        return self._node(voter_id, {}).log_path.read_text()

    # -- processes -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def start_all(self) -> None:
        """Start every voter that does not run, and wait for a leader and for all to answer."""
        for voter_id in self.voter_ids:
            if voter_id not in self.processes:
                self.start(voter_id)
        self.wait_for_leader()
        self._wait_until(
            lambda: all(self.status(voter_id) is not None for voter_id in self.processes),
            "every voter to answer",
        )

    def start(self, voter_id: int) -> None:
        node = self._configured_node(voter_id)
        self.processes[voter_id] = spawn_forked(node, sys.executable, attached=True)

    def start_new(self) -> int:
        """Start one more process with an empty folder, that waits to be added; its id."""
        voter_id = max(self._raft_ports) + 1
        self._raft_ports[voter_id], self._grpc_ports[voter_id] = free_ports(2)
        self.voter_ids.append(voter_id)
        self.start(voter_id)
        return voter_id

    def wipe(self, voter_id: int) -> None:
        """Its disk is replaced by an empty one; it must not run."""
        shutil.rmtree(self.data_dir(voter_id))

    def wait_for_exit(self, voter_id: int) -> int:
        """The exit code of a voter that ends by itself."""
        code = _finish(self.processes[voter_id], START_TIMEOUT_S)
        del self.processes[voter_id]
        return code

    def as_voter(self, voter_id: int) -> str:
        """``id@host:raft/grpc``, as configurations and ``add-voter`` have it."""
        ports = f"{self._raft_ports[voter_id]}/{self._grpc_ports[voter_id]}"
        return f"{voter_id}@127.0.0.1:{ports}"

    def write_config(self, voter_id: int) -> Path:
        """Write the configuration file of a voter, and return its path."""
        return self._configured_node(voter_id).config_path

    def _node(self, voter_id: int, config: Mapping[str, object]) -> Node:
        return Node("quorum", voter_id, config, self.folder)

    def _configured_node(self, voter_id: int) -> Node:
        """Return the voter with its configuration on disk.

        The voters that it names are those there were when it was first started: nobody edits files
        later.
        """
        configured = self._configured.setdefault(voter_id, list(self.voter_ids))
        voters = ",".join(self.as_voter(each) for each in configured)
        values: dict[str, object] = {
            "node.id": voter_id,
            "cluster.id": self.cluster_id,
            "data.dir": str(self.data_dir(voter_id)),
            "quorum.voters": voters,
            **self._security_values(voter_id),
            **self.settings,
        }
        node = self._node(voter_id, values)
        write_config(node)
        return node

    def _security_values(self, voter_id: int) -> dict[str, object]:
        if self.authority is None:
            return {"security.protocol": "PLAINTEXT"}
        self.authority.issue_node(Role.VOTER, voter_id)
        return {
            "ssl.keystore.location": str(self.authority.folder / f"voter-{voter_id}.pem"),
            "ssl.truststore.location": str(self.authority.truststore),
        }

    def kill(self, voter_id: int) -> None:
        """kill -9."""
        process = self.processes.pop(voter_id)
        process.kill()
        _finish(process)

    def stop(self, voter_id: int) -> int:
        """SIGTERM; its exit code."""
        process = self.processes.pop(voter_id)
        process.terminate()
        try:
            return _finish(process, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def stop_all(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                _finish(process, STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _finish(process)
        self.processes.clear()

    def pause(self, voter_id: int) -> None:
        """SIGSTOP; returns once every thread has stopped, which kill does not wait for."""
        pid = self.processes[voter_id].pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _threads_stopped(pid), f"voter {voter_id} to stop")

    def resume(self, voter_id: int) -> None:
        """SIGCONT."""
        os.kill(self.processes[voter_id].pid, signal.SIGCONT)

    # -- state -----------------------------------------------------------------------------------

    def forget(self, voter_id: int) -> None:
        """It is no longer a voter, and does not run."""
        self.voter_ids.remove(voter_id)

    def status(self, voter_id: int) -> pb.QuorumStatusResponse | None:
        """Return the status as the voter sees it; None if it does not answer."""
        with self._channel(voter_id) as channel:
            try:
                return QuorumStub(channel).QuorumStatus(pb.QuorumStatusRequest(), timeout=1.0)
            except grpc.RpcError:
                return None

    def _channel(self, voter_id: int) -> grpc.Channel:
        if self.security is None:
            return grpc.insecure_channel(self.address(voter_id))
        return grpc.secure_channel(
            self.address(voter_id), channel_credentials(self.security), options=ONLY_VOTERS
        )

    def leader(self) -> int | None:
        """A running voter that says it leads."""
        for voter_id in self.processes:
            status = self.status(voter_id)
            if status is not None and status.leader_id == voter_id:
                return voter_id
        return None

    def wait_for_leader(self, timeout_s: float = START_TIMEOUT_S) -> int:
        return self._wait_until(self.leader, "a leader", timeout_s)

    def wait_until_known(self, voter_id: int, leader: int) -> None:
        """Wait until ``voter_id`` has heard from ``leader``: a voter learns of an election
        later."""

        def is_known() -> bool:
            status = self.status(voter_id)
            return status is not None and status.leader_id == leader

        self._wait_until(is_known, f"voter {voter_id} to hear of {leader}")

    def wait_until_applied(self, voter_id: int, offset: int) -> None:
        """Wait until the voter has applied everything up to ``offset``."""

        def is_applied() -> bool:
            status = self.status(voter_id)
            return status is not None and status.applied_offset >= offset

        self._wait_until(is_applied, f"voter {voter_id} to apply {offset}")

    def _wait_until(
        self, condition: Callable[[], T | None], what: str, timeout_s: float = START_TIMEOUT_S
    ) -> T:
        """While all voters live that were started."""

        def holds() -> T | None:
            self.check_running()
            return condition()

        return wait_until(holds, lambda: f"{what}\n{self._logs()}", timeout_s=timeout_s)

    def check_running(self) -> None:
        for voter_id, process in self.processes.items():
            code = process.poll()
            if code is not None:
                raise RuntimeError(
                    f"voter {voter_id} exited with {code}:\n{self.log_text(voter_id)}"
                )

    def _logs(self) -> str:
        return "\n".join(
            f"--- voter {voter_id}\n{self.log_text(voter_id)}" for voter_id in self.processes
        )


def _finish(process: ChildProcess, timeout_s: float | None = None) -> int:
    """Wait for the end of a voter's process, let go of its input, and return its exit code."""
    code = process.wait(timeout_s)
    if process.stdin is not None:
        process.stdin.close()
    return code


def _threads_stopped(pid: int) -> bool:
    states = (path.read_text().rpartition(")")[2].split()[0] for path in _thread_stats(pid))
    return all(state == "T" for state in states)


def _thread_stats(pid: int) -> Iterable[Path]:
    return Path(f"/proc/{pid}/task").glob("*/stat")


@contextlib.asynccontextmanager
async def connected(
    quorum: QuorumCluster, description: str = "test", session_timeout_ms: int = 6_000
) -> AsyncIterator[QuorumClient]:
    """A client with a session, closed at the end."""
    client = QuorumClient(
        quorum.addresses,
        description=description,
        session_timeout_ms=session_timeout_ms,
        security=quorum.security,
    )
    await client.start(deadline_ms=int(START_TIMEOUT_S * 1000))
    try:
        yield client
    finally:
        await client.close()
