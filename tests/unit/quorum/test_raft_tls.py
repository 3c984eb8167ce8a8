"""TLS of a raft connection, over bytes alone; and two transports that talk to each other."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.types import Endpoint, VoterId
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_connection import MAX_HELLO_BYTES, MAX_STRANGER_BYTES
from quorate.quorum.raft.network.raft_tls import TlsContexts, TlsError, TlsStream
from quorate.quorum.raft.network.transport import MAX_STRANGERS, VoterNode, VoterTransport
from tests.support.metadata import quorum_voter
from tests.support.quorum_cluster import free_ports, security_in

CLUSTER = "cluster"


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.open(tmp_path / "certs")


def voter(authority: CertificateAuthority, voter_id: int) -> Security:
    authority.issue_node(Role.VOTER, voter_id)
    return security_in(authority, f"voter-{voter_id}", Role.VOTER)


def pair(dialling: Security, accepting: Security) -> tuple[TlsStream, TlsStream]:
    return (
        TlsContexts(dialling).stream(accepted=False),
        TlsContexts(accepting).stream(accepted=True),
    )


def carry(source: TlsStream, target: TlsStream) -> None:
    target.receive(source.take_outgoing())


def shake_hands(dialling: TlsStream, accepting: TlsStream) -> None:
    assert not dialling.handshake()
    carry(dialling, accepting)
    assert not accepting.handshake()
    carry(accepting, dialling)
    assert dialling.handshake()
    carry(dialling, accepting)
    assert accepting.handshake()


def test_each_side_learns_whom_the_others_certificate_names(
    authority: CertificateAuthority,
) -> None:
    one, two = pair(voter(authority, 1), voter(authority, 2))
    shake_hands(one, two)
    assert one.principal is not None
    assert one.principal.is_node(Role.VOTER, 2)
    assert two.principal is not None
    assert two.principal.is_node(Role.VOTER, 1)


def test_the_next_connection_is_made_with_a_renewed_certificate(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.common.tls.renewable.LOOK_INTERVAL_S", 0.0)
    contexts = TlsContexts(RenewableSecurity(lambda: voter(authority, 1)))
    other = TlsContexts(voter(authority, 2))

    def peer_seen_by_the_other() -> frozenset[str]:
        one, two = contexts.stream(accepted=False), other.stream(accepted=True)
        shake_hands(one, two)
        assert two.principal is not None
        return two.principal.names

    assert "renewed" not in peer_seen_by_the_other()
    authority.issue_node(Role.VOTER, 1, hosts=["renewed"], replace=True)
    assert "renewed" in peer_seen_by_the_other()


def test_bytes_arrive_whole_and_in_order(authority: CertificateAuthority) -> None:
    one, two = pair(voter(authority, 1), voter(authority, 2))
    shake_hands(one, two)
    data = bytes(range(256)) * 4_000
    one.encrypt(data[:10])
    one.encrypt(data[10:])
    sent = one.take_outgoing()
    assert data[:100] not in sent
    received = b""
    for start in range(0, len(sent), 1_000):
        two.receive(sent[start : start + 1_000])
        received += two.decrypted()
    assert received == data


def test_another_authoritys_certificate_is_refused_by_either_side(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority.open(tmp_path / "other")
    one, two = pair(voter(other, 1), voter(authority, 2))
    assert not one.handshake()
    carry(one, two)
    assert not two.handshake()
    carry(two, one)
    with pytest.raises(TlsError, match="certificate is refused"):
        one.handshake()


def test_what_is_not_tls_is_refused(authority: CertificateAuthority) -> None:
    _, two = pair(voter(authority, 1), voter(authority, 2))
    two.receive(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(TlsError, match="TLS failed"):
        two.handshake()


def test_a_forged_record_is_refused(authority: CertificateAuthority) -> None:
    one, two = pair(voter(authority, 1), voter(authority, 2))
    shake_hands(one, two)
    one.encrypt(b"to be changed on the way")
    sent = bytearray(one.take_outgoing())
    sent[-1] ^= 1
    two.receive(bytes(sent))
    with pytest.raises(TlsError, match="TLS failed"):
        two.decrypted()


# --- two transports -------------------------------------------------------------------------------


def admission(own: VoterNode, other: VoterNode) -> Admission:
    members = [quorum_voter(own.voter_id), quorum_voter(other.voter_id)]
    return Admission(members[0], members, lambda: False)


class Pair:
    """Voter 2 dials voter 1; ``claims`` is the id that the second says it has."""

    def __init__(self, first: Security, second: Security, claims: int = 2) -> None:
        ports = free_ports(2)
        self.poller = DrivenPoller()
        self.address = ("127.0.0.1", ports[0])
        one = VoterNode(VoterId(1), Endpoint("127.0.0.1", ports[0]))
        two = VoterNode(VoterId(claims), Endpoint("127.0.0.1", ports[1]))
        self.first = VoterTransport(self.poller, CLUSTER, one, [two], admission(one, two), first)
        self.second = VoterTransport(self.poller, CLUSTER, two, [one], admission(two, one), second)
        self.received: list[dict[str, object]] = []
        self.first.setOnMessageReceivedCallback(lambda _node, body: self.received.append(body))
        for transport in (self.first, self.second):
            transport.setOnNodeConnectedCallback(lambda _node: None)
            transport.setOnNodeDisconnectedCallback(lambda _node: None)
        self.first.listen()
        self.second.tend(1.0)

    def run(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            self.poller.wait(0.01)

    def is_connected(self) -> bool:
        return self.first.is_connected(2) and self.second.is_connected(1)

    def close(self) -> None:
        self.first.destroy()
        self.second.destroy()
        self.poller.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for each in made:
        each.close()


def test_voters_connect_and_talk(authority: CertificateAuthority, pairs: list[Pair]) -> None:
    pairs.append(Pair(voter(authority, 1), voter(authority, 2)))
    pairs[0].run()
    assert pairs[0].is_connected()
    command = b"\x00" + b"x" * (4 * MAX_STRANGER_BYTES)
    message = {
        "type": "append_entries",
        "term": 1,
        "commit_index": 1,
        "prevLogIdx": 1,
        "prevLogTerm": 0,
        "entries": [(command, 2, 1)] * 1,
    }
    (first_as_seen,) = pairs[0].second._others.values()
    assert pairs[0].second.send(first_as_seen, message)
    pairs[0].run()
    assert [body["entries"] for body in pairs[0].received] == [message["entries"]]
    assert len(command) > MAX_HELLO_BYTES


def test_voters_get_in_though_strangers_wait_at_the_door(
    authority: CertificateAuthority, pairs: list[Pair]
) -> None:
    pairs.append(Pair(voter(authority, 1), voter(authority, 2)))
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_STRANGERS):
            sock = socket.create_connection(pairs[0].address, source_address=("127.0.0.9", 0))
            stack.enter_context(sock)
        pairs[0].run()
        assert pairs[0].is_connected()
        assert len(pairs[0].first._unintroduced) <= MAX_STRANGERS


def test_a_voter_cannot_claim_another_voters_id(
    authority: CertificateAuthority, pairs: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    pairs.append(Pair(voter(authority, 1), voter(authority, 3), claims=2))
    pairs[0].run()
    assert not pairs[0].is_connected()
    assert "voter-3.quorate, voter.quorate (CN=voter-3) is not that of voter 2" in caplog.text


def test_a_broker_cannot_claim_to_be_a_voter(
    authority: CertificateAuthority, pairs: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue_node(Role.BROKER, 2)
    broker = security_in(authority, "broker-2", Role.BROKER)
    pairs.append(Pair(voter(authority, 1), broker))
    pairs[0].run()
    assert not pairs[0].is_connected()
    assert "broker-2.quorate, broker.quorate (CN=broker-2) is not that of voter 2" in caplog.text


def test_who_answers_must_be_the_voter_that_was_dialled(
    authority: CertificateAuthority, pairs: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    pairs.append(Pair(voter(authority, 3), voter(authority, 2)))
    pairs[0].run()
    assert not pairs[0].is_connected()
    assert "(CN=voter-3) is not that of voter 1" in caplog.text
