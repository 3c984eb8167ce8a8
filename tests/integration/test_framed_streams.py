"""Framed streams over real sockets: followers use them, TLS guards them, and gRPC stands in."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quorate.broker.replication.fetching import replica_fetcher
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.replication.streams.packed_codec import (
    REFUSAL,
    VERSION,
    Hello,
    encode_hello,
    open_frame,
)
from quorate.broker.rpc.peer_channels import Peer, connect
from quorate.broker.rpc.peer_tls import PeerTls
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.types import BrokerId, Endpoint
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.quorum_cluster import security_in
from tests.support.replica_cluster import RealNetwork, ReplicaCluster, batch, batches
from tests.support.waiting import async_wait_until

HERE = Endpoint("127.0.0.1", 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2, 3)
        yield cluster


def framed(cluster: ReplicaCluster) -> int:
    """The streams that broker 1 serves."""
    return len(cluster.nodes[1]._followers._streams)


async def committed(cluster: ReplicaCluster, *records: bytes) -> None:
    outcomes = await cluster.nodes[1].produce("orders", *records)
    assert {outcome.error_code for outcome in outcomes} == {errors_pb2.NONE}


async def test_c12_followers_fetch_over_framed_streams(cluster: ReplicaCluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await committed(cluster, *batches("record", 30), batch("large" * 200_000))
    assert framed(cluster) == 2
    end = cluster.nodes[1].hosted("orders").log.log_end_offset
    for follower in (2, 3):
        assert cluster.nodes[follower].log_bytes("orders", end) == cluster.nodes[1].log_bytes(
            "orders"
        )


async def test_c12_a_framed_stream_that_breaks_is_opened_again(cluster: ReplicaCluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    await committed(cluster, batch("before"))
    for stream in list(cluster.nodes[1]._followers._streams):
        stream._transport.abort()
    await committed(cluster, batch("after"))
    assert framed(cluster) == 2


async def test_followers_fetch_over_grpc_while_they_cannot_reach_the_port(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reach = RealNetwork.connect

    async def blocked(*_: object) -> None:
        raise ConnectionRefusedError("a firewall")

    monkeypatch.setattr(RealNetwork, "connect", blocked)
    caplog.set_level(logging.INFO, replica_fetcher.__name__)
    await cluster.create_topic("orders", (1, 2, 3))
    await committed(cluster, batch("over gRPC"))
    assert framed(cluster) == 0
    warnings = [one for one in caplog.messages if "cannot be reached" in one]
    assert len(warnings) == 2, "one of each follower"
    assert "replication.port" in warnings[0]
    assert "a firewall" in warnings[0]

    monkeypatch.setattr(replica_fetcher, "FRAMED_AGAIN_MS", 1)
    monkeypatch.setattr(RealNetwork, "connect", reach)
    for node in (2, 3):
        fetcher = cluster.nodes[node].manager._fetchers._fetchers[BrokerId(1)]
        monkeypatch.setattr(fetcher, "_framed_again_ms", 0)
    await async_wait_until(lambda: framed(cluster) == 2, "two framed streams")
    await committed(cluster, batch("over framed streams"))
    streams = cluster.nodes[1]._followers._streams
    await async_wait_until(lambda: len(streams) == 2, "an end of what was tried", timeout_s=5)


async def test_a_connection_that_comes_too_late_carries_nothing(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[tuple[Peer, int, asyncio.BaseProtocol]] = []

    async def too_late(_: RealNetwork, peer: Peer, port: int, stream: asyncio.BaseProtocol) -> None:
        late.append((peer, port, stream))
        raise TimeoutError

    monkeypatch.setattr(RealNetwork, "connect", too_late)
    await cluster.create_topic("orders", (1, 2, 3))
    await committed(cluster, batch("over gRPC"))
    for connection in late:
        await connect(*connection)
    await async_wait_until(lambda: framed(cluster) == 0, "nobody on framed streams")
    await committed(cluster, batch("over gRPC still"))


async def test_followers_fetch_over_grpc_from_a_leader_without_framed_streams(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.nodes[1]._followers, "port", 0)
    await cluster.create_topic("orders", (1, 2, 3))
    await committed(cluster, batch("over gRPC"))
    assert framed(cluster) == 0


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    found = CertificateAuthority.open(tmp_path_factory.mktemp("certs"))
    for broker_id in (1, 2, 3):
        found.issue_node(Role.BROKER, broker_id)
    found.issue_node(Role.VOTER, 2)
    other = CertificateAuthority.open(found.folder / "other")
    other.issue_node(Role.BROKER, 2)
    return found


class Answer(asyncio.Protocol):
    """Says hello as broker 2 to broker 1; ``refusal``: why it is not let in, or None."""

    def __init__(self, follower: int = 2) -> None:
        self.refusal: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._follower = BrokerId(follower)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(encode_hello(Hello(VERSION, self._follower, BrokerId(1))))

    def data_received(self, data: bytes) -> None:
        kind, header, _ = open_frame(data[4:])
        assert kind == REFUSAL
        self.refusal.set_result(bytes(header).decode())
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.refusal.done():
            self.refusal.set_result("the connection was closed")

    def close(self) -> None:
        self._transport.abort()


@asynccontextmanager
async def listening(
    authority: CertificateAuthority, stem: str = "broker-1"
) -> AsyncIterator[tuple[ReplicationListener, PeerTls]]:
    """Broker 1 serves framed streams under TLS."""
    broker = await BrokerReplicas().start()
    tls = PeerTls(RenewableSecurity(lambda: security_in(authority, stem, Role.BROKER)))
    listener = ReplicationListener(broker.manager.table, tls, RefusalLog("inter-broker port"))
    await listener.start(HERE)
    yield listener, tls
    await listener.stop()
    await broker.close()


def certificates(authority: CertificateAuthority, stem: str, role: Role) -> Security:
    return security_in(authority, stem, role)


async def asked(
    listener: ReplicationListener, security: Security | None, *, leader: int = 1, follower: int = 2
) -> Answer:
    answer = Answer(follower)
    await connect(Peer(BrokerId(leader), HERE), listener.port, answer, security)
    return answer


async def test_e3_a_broker_is_let_in_as_itself(authority: CertificateAuthority) -> None:
    async with listening(authority) as (listener, _):
        answer = await asked(listener, certificates(authority, "broker-2", Role.BROKER))
        await async_wait_until(
            lambda: [one for one in listener._streams if one.has_said_hello], "its hello"
        )
        assert not answer.refusal.done()
        answer.close()


async def test_e3_a_broker_is_not_let_in_as_another(authority: CertificateAuthority) -> None:
    async with listening(authority) as (listener, _):
        security = certificates(authority, "broker-3", Role.BROKER)
        answer = await asked(listener, security, follower=2)
        assert await answer.refusal == "broker 3 asks as broker 2"


async def test_e3_a_voter_is_no_follower(authority: CertificateAuthority) -> None:
    async with listening(authority) as (listener, _):
        answer = await asked(listener, certificates(authority, "voter-2", Role.VOTER))
        assert "this is no broker's certificate" in str(await answer.refusal)


async def test_e3_nobody_is_let_in_without_a_certificate_of_the_authority(
    authority: CertificateAuthority,
) -> None:
    async with listening(authority) as (listener, _):
        stranger = certificates(
            CertificateAuthority.open(authority.folder / "other"), "broker-2", Role.BROKER
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(listener, stranger)
        trusting = ssl.create_default_context(cafile=str(authority.truststore))
        trusting.check_hostname = False
        loop = asyncio.get_running_loop()
        _, answer = await loop.create_connection(
            Answer, "127.0.0.1", listener.port, ssl=trusting, server_hostname="broker-1.quorate"
        )
        assert await answer.refusal == "the connection was closed"
        _, plain = await loop.create_connection(Answer, "127.0.0.1", listener.port)
        assert await plain.refusal == "the connection was closed"


async def test_e3_a_follower_takes_no_other_broker_for_its_leader(
    authority: CertificateAuthority,
) -> None:
    async with listening(authority) as (listener, _):
        with pytest.raises(ssl.SSLCertVerificationError, match="broker-3"):
            await asked(listener, certificates(authority, "broker-2", Role.BROKER), leader=3)


async def test_renewed_certificates_are_used(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path)
    authority.issue_node(Role.BROKER, 1)
    security = [security_in(authority, "broker-1", Role.BROKER)]
    source = RenewableSecurity(lambda: security[0])
    tls = PeerTls(source)
    before = tls.context
    assert not tls.renewed()
    source._current = security_in(authority, "broker-1", Role.BROKER)
    assert tls.renewed()
    assert tls.context is not before
    assert not tls.renewed()
