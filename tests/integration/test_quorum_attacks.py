"""Strangers at the ports of a quorum at work: refused, said once, and nobody else notices."""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from quorate.common.grpc_support.grpc_log import GONE_AT_ONCE
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.types import ID_BYTES, BrokerId, Endpoint
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import BrokerRegistration, Operation
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate.quorum.voter_channels import SERVER_OPTIONS, bind_server, open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.integration.quorum_writes import Writer, write
from tests.support.attacks import ON_BOTH_PORTS, ON_THE_RAFT_PORT, Attack, Stranger
from tests.support.quorum_cluster import QuorumCluster, connected, security_in
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

ATTEMPTS = 2
SILENT_STRANGERS = 200
PATIENT = {"raft.election.timeout.min.ms": 800, "raft.election.timeout.max.ms": 1_600}
"""On a busy machine a voter may be late without anybody attacking it."""

_hosts = (f"127.0.{high}.{low}" for high in range(1, 255) for low in range(1, 255))


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    folder = tmp_path_factory.mktemp("attacked")
    with QuorumCluster(folder, secure=True, settings=PATIENT) as cluster:
        authority = authority_of(cluster)
        authority.issue_node(Role.BROKER, 1)
        authority.issue("expired", ["voter-2.quorate", "voter.quorate"], days=0)
        authority.issue("nobody", ["host.example"])
        other = CertificateAuthority.open(folder / "other")
        other.issue_node(Role.VOTER, 2)
        (other.folder / "voter-2.pem").rename(authority.folder / "of-another-authority.pem")
        yield cluster


def authority_of(quorum: QuorumCluster) -> CertificateAuthority:
    assert quorum.authority is not None
    return quorum.authority


def stranger_at(quorum: QuorumCluster, voter_id: int, port_name: str, mark: Path) -> Stranger:
    address = quorum.address(voter_id)
    raft = quorum.raft_address(voter_id)[1]
    return Stranger(
        host=next(_hosts),
        port=raft if port_name == "raft port" else int(address.rpartition(":")[2]),
        certificates=authority_of(quorum).folder,
        mark=mark,
        cluster_id=quorum.cluster_id,
    )


def memory_kb(quorum: QuorumCluster, voter_id: int) -> int:
    status = Path(f"/proc/{quorum.processes[voter_id].pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def term_of(quorum: QuorumCluster, voter_id: int) -> int:
    status = quorum.status(voter_id)
    assert status is not None
    return status.term


@asynccontextmanager
async def undisturbed_writing(quorum: QuorumCluster) -> AsyncIterator[Writer]:
    """Writes before, meanwhile and afterwards; no election, nobody ends, no memory is lost."""
    leader = quorum.wait_for_leader()
    term, memory = term_of(quorum, leader), memory_kb(quorum, leader)
    async with connected(quorum) as client:
        await write(client)
        writer = Writer(client)
        try:
            yield writer
            await write(client, 10)
        finally:
            await writer.stop()
    assert writer.uncertain == 0
    assert writer.acknowledged
    assert all(process.poll() is None for process in quorum.processes.values())
    assert (quorum.wait_for_leader(), term_of(quorum, leader)) == (leader, term)
    assert memory_kb(quorum, leader) < memory + 40_000


async def said(quorum: QuorumCluster, voter_id: int, words: str) -> list[str]:
    """Lines of the voter's log with these words, once there is one."""
    return await async_wait_until(
        lambda: [line for line in quorum.log_text(voter_id).splitlines() if words in line],
        lambda: f"{words!r} in:\n{quorum.log_text(voter_id)}",
        timeout_s=10,
    )


@pytest.mark.parametrize(
    ("port_name", "attack"),
    [
        *itertools.product(("raft port", "gRPC port"), ON_BOTH_PORTS),
        *itertools.product(("raft port",), ON_THE_RAFT_PORT),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_p9_who_is_refused_is_said_once_and_nobody_else_notices(
    quorum: QuorumCluster, tmp_path: Path, port_name: str, attack: Attack
) -> None:
    leader = quorum.wait_for_leader()
    stranger = stranger_at(quorum, leader, port_name, tmp_path / "executed")
    async with undisturbed_writing(quorum):
        for _ in range(ATTEMPTS):
            await asyncio.to_thread(attack, stranger)
        lines = await said(quorum, leader, f"{port_name}: refused {stranger.host}: ")
    assert len(lines) == 1
    assert not stranger.mark.exists()


@pytest.mark.parametrize("port_name", ["raft port", "gRPC port"])
async def test_p9_who_resets_before_it_is_looked_at_is_said_too(
    quorum: QuorumCluster, tmp_path: Path, port_name: str
) -> None:
    leader = quorum.wait_for_leader()
    stranger = stranger_at(quorum, leader, port_name, tmp_path / "executed")
    async with undisturbed_writing(quorum):
        quorum.pause(leader)
        await asyncio.to_thread(stranger.send_and_reset, stranger.hello_of(2))
        quorum.resume(leader)
        name = GONE_AT_ONCE if port_name == "gRPC port" else stranger.host
        lines = await said(quorum, leader, f"{port_name}: refused {name}: ")
    assert len(lines) == 1


@pytest.mark.parametrize("port_name", ["raft port", "gRPC port"])
async def test_p9_those_who_say_nothing_are_few_and_soon_gone(
    quorum: QuorumCluster, tmp_path: Path, port_name: str
) -> None:
    leader = quorum.wait_for_leader()
    stranger = stranger_at(quorum, leader, port_name, tmp_path / "executed")
    async with undisturbed_writing(quorum):
        with contextlib.ExitStack() as stack:
            silent = [
                stack.enter_context(await asyncio.to_thread(stranger.connect))
                for _ in range(SILENT_STRANGERS)
            ]
            silent[-1].sendall(b"\x16\x03\x01")
            lines = await said(quorum, leader, f"{port_name}: refused {stranger.host}: ")
            assert all([await asyncio.to_thread(was_closed, sock) for sock in silent])
    assert len(lines) == 1


@pytest.mark.slow
async def test_p9_a_minute_of_attacks_at_both_ports_costs_no_memory(
    quorum: QuorumCluster, tmp_path: Path
) -> None:
    leader = quorum.wait_for_leader()
    term = term_of(quorum, leader)
    until_s = time.monotonic() + 60
    ports = {"raft port": [*ON_BOTH_PORTS, *ON_THE_RAFT_PORT], "gRPC port": ON_BOTH_PORTS}

    def attack_all_the_time(port_name: str) -> int:
        stranger = stranger_at(quorum, leader, port_name, tmp_path / "executed")
        for count, attack in enumerate(itertools.cycle(ports[port_name])):
            if time.monotonic() > until_s:
                return count
            attack(stranger)
        raise AssertionError("a cycle does not end")

    async with connected(quorum) as client:
        await write(client, 100)
        before = memory_kb(quorum, leader)
        attacks = [asyncio.to_thread(attack_all_the_time, name) for name in ports]
        counts = await asyncio.gather(*attacks)
        await write(client, 100)
    assert sum(counts) > 100
    assert (quorum.wait_for_leader(), term_of(quorum, leader)) == (leader, term)
    assert memory_kb(quorum, leader) < before + 10_000
    assert not (tmp_path / "executed").exists()


def was_closed(sock: socket.socket) -> bool:
    """Whether the other side closes it before long."""
    sock.settimeout(15)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


# --- without a valid certificate ------------------------------------------------------------------


def foreign(quorum: QuorumCluster) -> Security:
    """Everything is right with it, but for who signed it."""
    other = CertificateAuthority.open(quorum.folder / "other")
    other.issue_node(Role.BROKER, 1)
    return security_in(other, "broker-1", Role.BROKER)


def named(quorum: QuorumCluster, stem: str, role: Role) -> Security:
    return security_in(authority_of(quorum), stem, role)


@pytest.mark.parametrize("kind", ["plain text", "of another authority"])
async def test_without_a_valid_certificate_nothing_is_read_or_written(
    quorum: QuorumCluster, kind: str
) -> None:
    security = None if kind == "plain text" else foreign(quorum)
    client = QuorumClient(
        quorum.addresses, description="stranger", session_timeout_ms=6_000, security=security
    )
    why = "perhaps it speaks TLS only" if security is None else "CERTIFICATE_VERIFY_FAILED"
    with pytest.raises(QuorumUnavailable, match=why):
        await client.start(deadline_ms=1_000)
    await client.close()
    async with open_channel(quorum.address(1), security) as channel:
        stub = stub_of(channel)
        for answer in (
            stub.Read(pb.ReadRequest(include_image=True), timeout=2),
            stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=2),
            stub.OpenSession(pb.OpenSessionRequest(timeout_ms=6_000), timeout=2),
            stub.Watch(pb.WatchRequest(), timeout=2).read(),
            stub.Transact(timeout=2).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await answer
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_of_no_role_may_do_nothing(quorum: QuorumCluster) -> None:
    admin = named(quorum, "admin", Role.ADMIN)
    nobody = (authority_of(quorum).folder / "nobody.pem").read_bytes()
    begin = nobody.index(b"-----BEGIN CERTIFICATE-----")
    security = Security(
        keystore=admin.keystore,
        truststore=admin.truststore,
        private_key=nobody[:begin],
        chain=nobody[begin:],
        authority=admin.authority,
        principal=admin.principal,
    )
    async with open_channel(quorum.address(1), security) as channel:
        stub = stub_of(channel)
        for answer in (
            stub.Read(pb.ReadRequest(include_image=True), timeout=2),
            stub.Watch(pb.WatchRequest(), timeout=2).read(),
            stub.Transact(timeout=2).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await answer
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert len(await said(quorum, 1, "gRPC port: refused no name of the cluster (CN=nobody)")) == 1


async def test_a_broker_may_write_but_not_change_the_voters(quorum: QuorumCluster) -> None:
    security = named(quorum, "broker-1", Role.BROKER)
    client = QuorumClient(
        quorum.addresses, description="broker 1", session_timeout_ms=6_000, security=security
    )
    await client.start(deadline_ms=10_000)
    registration = BrokerRegistration(
        broker_id=BrokerId(1),
        session_id=client.session_id,
        incarnation_id=bytes(ID_BYTES),
        kafka=Endpoint("h", 1),
        grpc=Endpoint("h", 2),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )
    assert (await client.transact([Operation(records=(registration,))])).ok
    await client.close()
    async with open_channel(quorum.address(1), security) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub_of(channel).RemoveVoter(pb.RemoveVoterRequest(voter_id=1), timeout=2)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "broker-1.quorate" in str(refused.value.details())


async def test_only_a_voters_certificate_is_believed_of_a_server(
    quorum: QuorumCluster,
) -> None:
    """Whoever has a broker's certificate cannot pose as the quorum."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    port = bind_server(server, "127.0.0.1:0", named(quorum, "broker-1", Role.BROKER))
    await server.start()
    async with open_channel(f"127.0.0.1:{port}", quorum.security) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="Hostname Verification Check failed"):
            await stub_of(channel).QuorumStatus(pb.QuorumStatusRequest(), timeout=2)
    await server.stop(None)


async def test_a_voter_of_another_authority_does_not_join(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, secure=True) as quorum:
        quorum.stop(3)
        own = quorum.authority
        quorum.authority = CertificateAuthority.open(tmp_path / "other")
        quorum.start(3)
        quorum.authority = own
        async with connected(quorum) as client:
            await said(quorum, 1, "raft port: refused 127.0.0.1: ")
            await write(client, 20)
        leader = quorum.wait_for_leader()
        status = quorum.status(leader)
        assert status is not None
        assert {voter.voter_id for voter in status.voters if not voter.connected} == {3}


async def test_certificates_are_renewed_in_a_rolling_restart(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, secure=True) as quorum:
        async with connected(quorum) as client:
            for voter_id in quorum.voter_ids:
                await write(client, 10)
                authority_of(quorum).issue_node(Role.VOTER, voter_id, replace=True)
                quorum.stop(voter_id)
                await asyncio.to_thread(quorum.start_all)
            await write(client, 10)
