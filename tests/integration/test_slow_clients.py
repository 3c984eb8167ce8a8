"""Clients that do everything slowly, or never finish: frames byte by byte, handshakes, logins.

They are closed when their time is over, however busily they trickle, and until then others are
served. TLS is not begun anew within a connection.
"""

import logging
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.hostile_requests.wire import Wire
from bench.hostile_requests.world import ROOT, world
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.clients.test_secured_clients import Secured
from tests.support.waiting import let_time_pass

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

log = logging.getLogger(__name__)

OTHERS_WAIT_S = 15.0
"""Others are served, on a machine however slow; how fast is for the bench to say."""
IDLE_MS = 4_000
LOGIN_S = 30.0
TRICKLING = 200
EACH_S = 0.2
METADATA = 3


class Trickle:
    """Connections that each announce a request and send a byte of it now and then."""

    def __init__(self, stack: ExitStack, peers: list[socket.socket], announced: int) -> None:
        self.peers = peers
        self.closed = 0
        for peer in peers:
            stack.enter_context(peer)
            peer.sendall(struct.pack(">i", announced))
            peer.setblocking(False)

    def once(self) -> None:
        """A byte over each connection that is open."""
        left = []
        for peer in self.peers:
            try:
                peer.send(b"\0")
                left.append(peer)
            except OSError:
                self.closed += 1
        self.peers = left


def trickle_until_closed(trickle: Trickle, other: Wire, timeout_s: float) -> float:
    """Others are served all the while; the longest that they waited, in seconds."""
    begin_s, longest_s = time.monotonic(), 0.0
    while trickle.peers:
        assert time.monotonic() - begin_s < timeout_s, f"{len(trickle.peers)} are open"
        trickle.once()
        asked_s = time.monotonic()
        other.ask(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        longest_s = max(longest_s, time.monotonic() - asked_s)
        let_time_pass(EACH_S, "clients may trickle")
    return longest_s


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {"connections.max.idle.ms": IDLE_MS, "log.flush": "os"}
    with world(1, settings, partitions=5) as cluster:
        yield cluster


@pytest.mark.slow
def test_clients_that_never_log_in_are_closed_however_they_trickle(cluster: RunningCluster) -> None:
    """Their frames may have 64 KiB, and their time is that of the login."""
    with ExitStack() as stack, Wire(cluster.bootstrap, ROOT) as other:
        peers = [_connect(cluster.bootstrap) for _ in range(TRICKLING)]
        for peer in peers:
            peer.settimeout(10)
        trickle = Trickle(stack, peers, 60_000)
        longest_s = trickle_until_closed(trickle, other, LOGIN_S + 30)
    assert trickle.closed == TRICKLING
    log.info("others waited %.3f s at most", longest_s)
    assert longest_s < OTHERS_WAIT_S


@pytest.mark.slow
def test_users_who_trickle_a_request_are_closed_when_they_are_too_slow(
    cluster: RunningCluster,
) -> None:
    """Less than 64 KiB within ``connections.max.idle.ms`` is not counted as progress."""
    with ExitStack() as stack, Wire(cluster.bootstrap, ROOT) as other:
        users = [Wire(cluster.bootstrap, "nobody") for _ in range(TRICKLING // 4)]
        trickle = Trickle(stack, [user.socket for user in users], 1_000_000)
        longest_s = trickle_until_closed(trickle, other, IDLE_MS / 1_000 + 60)
    assert trickle.closed == len(users)
    log.info("others waited %.3f s at most", longest_s)
    assert longest_s < OTHERS_WAIT_S


def test_a_user_who_trickles_is_closed(cluster: RunningCluster) -> None:
    with ExitStack() as stack, Wire(cluster.bootstrap, ROOT) as other:
        user = Wire(cluster.bootstrap, "nobody")
        trickle = Trickle(stack, [user.socket], 1_000_000)
        trickle_until_closed(trickle, other, IDLE_MS / 1_000 + 30)
    assert trickle.closed == 1


@pytest.fixture(scope="module")
def secured(module_quorate_cluster: ClusterFactory) -> Secured:
    return Secured(module_quorate_cluster(brokers=1))


def serve_by_tls(secured: Secured) -> float:
    """How long a handshake and one request take, in seconds."""
    context = ssl.create_default_context(cafile=str(secured.authority.truststore))
    begin_s = time.monotonic()
    with context.wrap_socket(_connect(secured.at["SSL"]), server_hostname="127.0.0.1") as peer:
        peer.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        assert peer.recv(4)
    return time.monotonic() - begin_s


@pytest.mark.slow
def test_handshakes_that_are_never_finished_are_closed_and_others_begin(secured: Secured) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(_connect(secured.at["SSL"])) for _ in range(TRICKLING)]
        for number, peer in enumerate(silent):
            if number % 2:
                peer.sendall(b"\x16\x03\x01\x02\x00\x01")
        longest_s = max(serve_by_tls(secured) for _ in range(20))
        deadline = time.monotonic() + LOGIN_S + 30
        for peer in silent:
            peer.settimeout(max(0.1, deadline - time.monotonic()))
            assert _is_closed(peer)
    log.info("others began in %.3f s at most", longest_s)
    assert longest_s < OTHERS_WAIT_S
    assert serve_by_tls(secured) < LOGIN_S


@pytest.mark.parametrize("port", ["kafka", "grpc"])
def test_tls_1_2_is_not_negotiated_again(secured: Secured, port: str) -> None:
    """``R`` makes openssl ask for another handshake, which costs the server more than itself."""
    kafka, grpc = secured.at["SSL"], secured.cluster.voter_grpc_address(1)
    keystore = secured.authority.folder / "alice.pem"
    said = renegotiate(kafka if port == "kafka" else grpc, keystore)
    assert "Protocol  : TLSv1.2" in said, said
    assert "RENEGOTIATING" in said, said
    assert re.search("no renegotiation|unexpected eof|alert", said.partition("RENEGOTIATING")[2]), (
        said
    )
    assert serve_by_tls(secured) < LOGIN_S


def renegotiate(address: str, keystore: Path) -> str:
    """What openssl says when it asks for another handshake within one connection."""
    command = ["openssl", "s_client", "-connect", address, "-tls1_2", "-alpn", "h2"]
    process = subprocess.Popen(
        [*command, "-cert", str(keystore), "-key", str(keystore)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    assert process.stdin is not None
    timer = threading.Timer(20, process.kill)
    timer.start()
    try:
        let_time_pass(1.0, "the first handshake is over")
        process.stdin.write(b"R\n")
        let_time_pass(1.0, "the second one is refused")
        said, _ = process.communicate(b"Q\n")
    finally:
        timer.cancel()
    return said.decode(errors="replace")


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _is_closed(peer: socket.socket) -> bool:
    try:
        while peer.recv(1 << 12):
            pass
    except ConnectionResetError:
        return True
    return True
