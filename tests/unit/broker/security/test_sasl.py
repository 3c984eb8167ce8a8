"""The state of a connection that must authenticate: the order of requests, and its principal."""

import pytest

from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
)
from quorate.broker.security.sasl_session import (
    IllegalSaslState,
    SaslSession,
    UnsupportedSaslMechanism,
)
from quorate.broker.security.token_secrets import TokenLogin, TokenSecret
from quorate.metadata_log.image import Image
from tests.support.sasl import (
    TokenClient,
    WallClock,
    credentials,
    image_with_users,
    sasl_session,
    scram_client,
    scram_user,
)

METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE = 3, 18, 17, 36
ALICE = KafkaPrincipal("alice")


def log_in(session: SaslSession, user: str = "alice", password: str = "secret") -> int:
    """Log in by SCRAM-SHA-256 on a session at its handshake, and return its lifetime in ms."""
    session.handshake("SCRAM-SHA-256", 1)
    return go_on(session, scram_client(user, password))


def go_on(session: SaslSession, client: object) -> int:
    challenge = session.authenticate(client.first_message())  # type: ignore[attr-defined]
    assert isinstance(challenge, Challenge)
    client.process_server_first_message(challenge.response)  # type: ignore[attr-defined]
    outcome = session.authenticate(client.final_message())  # type: ignore[attr-defined]
    if isinstance(outcome, DeferredVerification):
        outcome = outcome.verify()
    assert isinstance(outcome, AuthenticatedClient)
    return session.complete(outcome)


def plain(session: SaslSession, message: bytes) -> int:
    session.handshake("PLAIN", 1)
    step = session.authenticate(message)
    assert isinstance(step, DeferredVerification)
    outcome = step.verify()
    assert isinstance(outcome, AuthenticatedClient)
    return session.complete(outcome)


def test_a_client_is_nobody_until_it_has_proved_who_it_is() -> None:
    session = sasl_session(credentials(alice="secret"))
    assert session.principal == ANONYMOUS
    assert "SaslHandshake" in (session.refusal_of(METADATA) or "")
    for key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE):
        assert session.refusal_of(key) is None
    assert log_in(session) == 0
    assert (session.principal, session.authenticated) == (ALICE, True)
    assert session.refusal_of(METADATA) is None


def test_after_a_handshake_alone_nothing_is_open() -> None:
    session = sasl_session(credentials(alice="secret"))
    session.handshake("SCRAM-SHA-256", 1)
    session.authenticate(scram_client("alice", "secret").first_message())
    assert session.refusal_of(METADATA) is not None
    assert session.principal == ANONYMOUS


def test_sasl_out_of_order_is_refused() -> None:
    session = sasl_session(credentials(alice="secret"))
    with pytest.raises(IllegalSaslState):
        session.authenticate(b"n,,n=alice,r=abc")
    session.handshake("PLAIN", 1)
    with pytest.raises(IllegalSaslState):
        session.handshake("SCRAM-SHA-256", 1)
    done = sasl_session(credentials(alice="secret"))
    log_in(done)
    with pytest.raises(IllegalSaslState):
        done.authenticate(b"n,,n=alice,r=abc")


def test_a_mechanism_that_is_not_enabled_is_refused_and_another_may_follow() -> None:
    session = sasl_session(credentials(alice="secret"), mechanisms=("SCRAM-SHA-256",))
    for name in ("PLAIN", "GSSAPI", "", "SCRAM-SHA-256-PLUS"):
        with pytest.raises(UnsupportedSaslMechanism, match="SCRAM-SHA-256 are enabled"):
            session.handshake(name, 1)
    log_in(session)
    assert session.principal == ALICE


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("ghost", "secret"), ("ALICE", "secret")]
)
def test_a_forged_proof_ends_it(user: str, password: str) -> None:
    session = sasl_session(credentials(alice="secret"))
    with pytest.raises(SaslAuthenticationFailed):
        log_in(session, user, password)
    assert session.principal == ANONYMOUS
    for key in (METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE):
        assert session.refusal_of(key) is not None


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_is_held_against_the_scram_credential(message: bytes) -> None:
    session = sasl_session(credentials(alice="secret"))
    assert plain(session, message) == 0
    assert session.principal == ALICE


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0ghost\0secret",
        b"bob\0alice\0secret",
        b"\0\0secret",
        b"\0alice\0",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0alice\0\xff",
        b"",
    ],
)
def test_plain_with_anything_else_is_refused(message: bytes) -> None:
    session = sasl_session(credentials(alice="secret"))
    with pytest.raises(SaslAuthenticationFailed):
        plain(session, message)
    assert session.principal == ANONYMOUS


def test_a_changed_password_holds_for_the_next_exchange() -> None:
    image = image_with_users(alice="old")
    who = credentials(lambda: image)
    log_in(sasl_session(who), password="old")
    image = image_with_users(alice="new")
    log_in(sasl_session(who), password="new")
    with pytest.raises(SaslAuthenticationFailed):
        log_in(sasl_session(who), password="old")
    image = Image()
    with pytest.raises(SaslAuthenticationFailed):
        log_in(sasl_session(who), password="new")


def test_kip368_a_session_ends_unless_the_client_authenticates_again() -> None:
    clock = WallClock()
    session = sasl_session(
        credentials(alice="secret", bob="other", clock=clock), max_reauth_ms=1_000
    )
    assert log_in(session) == 1_000
    clock.now_ms += 999
    assert session.refusal_of(METADATA) is None
    assert log_in(session) == 1_000
    clock.now_ms += 999
    assert session.refusal_of(METADATA) is None
    clock.now_ms += 1
    assert "ended" in (session.refusal_of(METADATA) or "")
    assert session.refusal_of(HANDSHAKE) is None
    assert log_in(session) == 1_000
    assert session.refusal_of(METADATA) is None


def test_kip368_whoever_authenticates_again_stays_who_it_was() -> None:
    session = sasl_session(credentials(alice="secret", bob="other"))
    log_in(session)
    with pytest.raises(IllegalSaslState):
        session.handshake("PLAIN", 1)
    with pytest.raises(SaslAuthenticationFailed, match="User:alice before"):
        log_in(session, "bob", "other")
    assert session.principal == ALICE
    assert session.refusal_of(METADATA) is not None


def token_login_until(expiry_ms: int) -> TokenLogin:
    stored = scram_user("hmac")
    return TokenLogin(
        KafkaPrincipal("alice", token_authenticated=True),
        expiry_ms,
        stored.salt,
        4_096,
        lambda: (TokenSecret(stored.stored_key, stored.server_key),),
    )


def test_kip48_a_token_logs_in_as_its_owner_for_as_long_as_it_lives() -> None:
    clock = WallClock()

    def find(token_id: str, mechanism: str, now_ms: int) -> TokenLogin | None:
        known = (token_id, mechanism) == ("token-1", "SCRAM-SHA-256")
        return token_login_until(now_ms + 500) if known else None

    who = credentials(find_token=find, clock=clock)
    for max_reauth_ms, lifetime_ms in ((0, 500), (1_000, 500), (200, 200)):
        session = sasl_session(who, max_reauth_ms=max_reauth_ms)
        session.handshake("SCRAM-SHA-256", 1)
        assert go_on(session, TokenClient("token-1", "hmac", "SCRAM-SHA-256")) == lifetime_ms
        assert session.principal == KafkaPrincipal("alice", token_authenticated=True)
    refused = sasl_session(who)
    refused.handshake("SCRAM-SHA-256", 1)
    with pytest.raises(SaslAuthenticationFailed):
        go_on(refused, TokenClient("token-2", "hmac", "SCRAM-SHA-256"))


def test_a_user_named_as_a_token_does_not_get_in_by_saying_it_is_one() -> None:
    session = sasl_session(credentials(alice="secret"))
    session.handshake("SCRAM-SHA-256", 1)
    with pytest.raises(SaslAuthenticationFailed):
        go_on(session, TokenClient("alice", "secret", "SCRAM-SHA-256"))


def test_bare_tokens_follow_a_handshake_of_version_0_and_no_other() -> None:
    old, new = (sasl_session(credentials(alice="secret")) for _ in range(2))
    old.handshake("PLAIN", 0)
    new.handshake("PLAIN", 1)
    assert (old.bare_tokens, new.bare_tokens) == (True, False)
    step = old.authenticate(b"\0alice\0secret")
    assert isinstance(step, DeferredVerification)
    outcome = step.verify()
    assert isinstance(outcome, AuthenticatedClient)
    old.complete(outcome)
    assert not old.bare_tokens
