"""The server's side of SCRAM against the RFC's example and kafka-python's client."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    SaslAuthenticationFailed,
)
from quorate.broker.security.scram import (
    MECHANISMS,
    ScramLogin,
    ScramSaslServer,
    credential,
    password_fits,
    salted_password,
)
from quorate.metadata_log.rules import administration as rules
from tests.support.sasl import SHA_256, TokenClient, scram_client, scram_user

RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
ALICE = KafkaPrincipal("alice")


def alice(_user: str, mechanism: str, _as_token: bool) -> ScramLogin:
    stored = scram_user("secret", mechanism)
    return ScramLogin(ALICE, stored.salt, stored.iterations, (stored,))


def server(find: Any = alice, mechanism: str = "SCRAM-SHA-256") -> ScramSaslServer:  # noqa: ANN401
    return ScramSaslServer(MECHANISMS[mechanism], find, "nonce-of-the-broker")


def challenge(of: ScramSaslServer, message: bytes) -> bytes:
    step = of.step(message)
    assert isinstance(step, Challenge)
    return step.response


def test_the_example_of_rfc_7677() -> None:
    salted = salted_password(SHA_256, "pencil", RFC_SALT, 4_096)
    stored = credential(SHA_256, salted, RFC_SALT, 4_096)

    def find(user: str, _mechanism: str, as_token: bool) -> ScramLogin:
        assert (user, as_token) == ("user", False)
        return ScramLogin(KafkaPrincipal(user), RFC_SALT, 4_096, (stored,))

    exchange = ScramSaslServer(SHA_256, find, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = challenge(exchange, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    outcome = exchange.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert outcome == AuthenticatedClient(signature, KafkaPrincipal("user"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_pythons_client_logs_in_and_knows_the_broker(mechanism: str) -> None:
    client, exchange = scram_client("alice", "secret", mechanism), server(mechanism=mechanism)
    client.process_server_first_message(challenge(exchange, client.first_message()))
    outcome = exchange.step(client.final_message())
    assert isinstance(outcome, AuthenticatedClient)
    assert outcome.principal == ALICE
    client.process_server_final_message(outcome.response)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(mechanism: str) -> None:
    client, exchange = scram_client("alice", "Secret", mechanism), server(mechanism=mechanism)
    client.process_server_first_message(challenge(exchange, client.first_message()))
    with pytest.raises(SaslAuthenticationFailed):
        exchange.step(client.final_message())


def test_what_is_stored_is_not_enough_to_log_in() -> None:
    """Stolen metadata does not prove an identity: H(client key) is stored, not the client key."""
    stored = scram_user("secret")
    client, exchange = scram_client("alice", "any"), server()
    client.process_server_first_message(challenge(exchange, client.first_message()))
    for stolen in (stored.stored_key, stored.server_key):
        client.client_proof = bytes(
            one ^ other
            for one, other in zip(stolen, client.hmac(stolen, client.auth_message), strict=True)
        )
        with pytest.raises(SaslAuthenticationFailed):
            exchange.step(client.final_message())


def test_any_of_a_tokens_secrets_will_do_and_signs_the_answer() -> None:
    old, new = scram_user("old"), scram_user("new")
    asked: list[tuple[str, str, bool]] = []

    def find(user: str, mechanism: str, as_token: bool) -> ScramLogin:
        asked.append((user, mechanism, as_token))
        return ScramLogin(ALICE, old.salt, old.iterations, (old, new), expiry_ms=7)

    for password in ("old", "new"):
        client, exchange = TokenClient("token-1", password, "SCRAM-SHA-256"), server(find)
        client.process_server_first_message(challenge(exchange, client.first_message()))
        outcome = exchange.step(client.final_message())
        assert isinstance(outcome, AuthenticatedClient)
        assert outcome.expiry_ms == 7
        client.process_server_final_message(outcome.response)
    assert asked == [("token-1", "SCRAM-SHA-256", True)] * 2


@pytest.mark.parametrize(
    ("sent", "name"), [(b"a=2Cb", "a,b"), (b"a=3Db=2C", "a=b,"), ("zoë".encode(), "zoë")]
)
def test_names_are_unescaped(sent: bytes, name: str) -> None:
    asked = []

    def find(user: str, mechanism: str, as_token: bool) -> ScramLogin:
        asked.append(user)
        return alice(user, mechanism, as_token)

    challenge(server(find), b"n,,n=" + sent + b",r=abc")
    challenge(server(find), b"n,a=" + sent + b",n=" + sent + b",r=abc")
    assert asked == [name, name]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,r=abc,n=alice",
        b"n,,m=critical,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=" + b"a" * 5_000 + b",r=abc",
    ],
)
def test_a_malformed_beginning_is_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        server().step(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: b"",
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"c=biws", b"c=!!!!"),
        lambda final: final.replace(b"nonce-of-the-broker", b"another-nonce"),
        lambda final: final.replace(b",r=", b",r=x"),
        lambda final: final.rpartition(b",p=")[0],
        lambda final: final.rpartition(b",p=")[0] + b",p=",
        lambda final: final.rpartition(b",p=")[0] + b",p=????",
        lambda final: final.rpartition(b",p=")[0] + b",p=" + base64.b64encode(bytes(31)),
        lambda final: final.rpartition(b",p=")[0] + b",p=" + base64.b64encode(bytes(32)),
        lambda final: final + b",more=1",
        lambda final: final.replace(b",p=", b",x=1,p="),
        lambda final: final + b"\xff",
    ],
)
def test_a_changed_end_is_refused(change: Any) -> None:  # noqa: ANN401
    client, exchange = scram_client("alice", "secret"), server()
    client.process_server_first_message(challenge(exchange, client.first_message()))
    with pytest.raises(SaslAuthenticationFailed):
        exchange.step(change(client.final_message()))


@pytest.mark.parametrize("unproved", ["c=biws,r=replayed", "c=eSws,r={nonce}", "c=,r={nonce}"])
def test_a_proof_of_another_exchange_is_refused_though_it_is_right(unproved: str) -> None:
    """A client with the right password may still not use an old challenge, or claim a binding."""
    client, exchange = scram_client("alice", "secret"), server()
    first = client.first_message()
    answer = challenge(exchange, first)
    client.process_server_first_message(answer)
    said = unproved.format(nonce=client.nonce.decode())
    signed = b",".join((first.removeprefix(b"n,,"), answer, said.encode()))
    signature = client.hmac(client.stored_key, signed)
    proof = bytes(one ^ two for one, two in zip(client.client_key, signature, strict=True))
    with pytest.raises(SaslAuthenticationFailed):
        exchange.step(said.encode() + b",p=" + base64.b64encode(proof))


def test_a_password_is_held_against_what_is_stored() -> None:
    for mechanism in MECHANISMS.values():
        stored = scram_user("pässword", mechanism.name)
        assert password_fits(mechanism, stored, "pässword")
        assert not password_fits(mechanism, stored, "password")


def test_the_metadatas_rules_and_the_exchange_know_the_same_mechanisms() -> None:
    assert {one.number: one.name for one in MECHANISMS.values()} == rules.MECHANISMS


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_bring_the_exchange_down_or_in(first: bytes, second: bytes) -> None:
    exchange = server()
    for message in (b"n,,n=alice,r=" + first, second, b"c=biws,r=" + second):
        try:
            assert isinstance(exchange.step(message), Challenge)
        except SaslAuthenticationFailed:
            continue
