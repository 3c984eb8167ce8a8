"""A delegation token from its creation to its last login, with kafka-python's SCRAM (KIP-48)."""

import base64

import pytest

from quorate.broker.controller.managers import token_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.token_manager import Lifetimes
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
)
from quorate.broker.security.sasl_session import SaslSession
from quorate.broker.security.token_secrets import TokenLogins, secret_of
from quorate.common.types import BrokerId, ControllerEpoch
from quorate_proto.v1 import admin_pb2
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder
from tests.support.sasl import TokenClient, WallClock, credentials, sasl_session

KEY, OLD = b"the newest key", b"the key before"
HOUR_MS = 3_600_000
METADATA = 3
TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


class World:
    """One broker that serves tokens, and alice, who makes one."""

    def __init__(self) -> None:
        self.clock = WallClock()
        self.keys: tuple[bytes, ...] = (KEY,)
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        self._find = TokenLogins(ShownImage(lambda: self.log.image), lambda: self.keys).find

    def make(self, token_id: str = "t1") -> bytes:
        """Return its secret, computed with the newest key."""
        context = admin_pb2.RequestContext(principal_name="User:alice")
        decision = token_manager.create(
            admin_pb2.CreateDelegationTokenRequest(context=context),
            tenure=TENURE,
            now_ms=self.clock.now_ms,
            token_id=token_id,
            lifetimes=Lifetimes(max_lifetime_ms=10 * HOUR_MS, expiry_time_ms=HOUR_MS),
        )
        assert self.log.transact(decision.operation).ok
        return secret_of(self.keys[0], token_id)

    def session(self, max_reauth_ms: int = 0) -> SaslSession:
        who = credentials(lambda: self.log.image, clock=self.clock, find_token=self._find)
        return sasl_session(who, max_reauth_ms=max_reauth_ms)

    def remove_ended(self) -> None:
        for operation in token_manager.removals(
            self.log.image, tenure=TENURE, now_ms=self.clock.now_ms
        ):
            assert self.log.transact(operation).ok


@pytest.fixture
def world() -> World:
    return World()


def log_in(
    session: SaslSession, secret: bytes, token_id: str = "t1", mechanism: str = "SCRAM-SHA-256"
) -> int:
    """Return the session's lifetime in ms, or 0 if it does not end."""
    client = TokenClient(token_id, base64.b64encode(secret).decode(), mechanism)
    session.handshake(mechanism, 1)
    challenge = session.authenticate(client.first_message())
    assert isinstance(challenge, Challenge)
    client.process_server_first_message(challenge.response)
    deferred = session.authenticate(client.final_message())
    assert isinstance(deferred, DeferredVerification), "secrets are hashed on a thread"
    outcome = deferred.verify()
    assert isinstance(outcome, AuthenticatedClient)
    client.process_server_final_message(outcome.response)
    return session.complete(outcome)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_a_token_is_its_owner_for_as_long_as_it_lives(world: World, mechanism: str) -> None:
    secret = world.make()
    session = world.session()
    assert log_in(session, secret, mechanism=mechanism) == HOUR_MS
    assert session.principal == KafkaPrincipal("alice", token_authenticated=True)
    world.clock.now_ms += HOUR_MS - 1
    assert session.refusal_of(METADATA) is None
    world.clock.now_ms += 1
    assert "ended" in (session.refusal_of(METADATA) or "")


def test_a_forged_secret_does_not_log_in(world: World) -> None:
    secret = world.make()
    for forged in (secret_of(b"a guess", "t1"), b"", secret[:-1], secret_of(KEY, "t2")):
        session = world.session()
        with pytest.raises(SaslAuthenticationFailed):
            log_in(session, forged)


def test_a_token_that_is_not_there_does_not_log_in(world: World) -> None:
    world.make()
    with pytest.raises(SaslAuthenticationFailed):
        log_in(world.session(), secret_of(KEY, "t2"), token_id="t2")


def test_an_ended_token_does_not_log_in_whether_it_is_removed_or_not(world: World) -> None:
    secret = world.make()
    world.clock.now_ms += HOUR_MS + 1
    with pytest.raises(SaslAuthenticationFailed):
        log_in(world.session(), secret)
    world.remove_ended()
    assert not world.log.image.tokens
    with pytest.raises(SaslAuthenticationFailed):
        log_in(world.session(), secret)


def test_a_changed_key_leaves_old_tokens_good_until_it_is_withdrawn(world: World) -> None:
    world.keys = (OLD,)
    made_before = world.make("t1")
    world.keys = (KEY, OLD)
    made_after = world.make("t2")
    assert log_in(world.session(), made_before, "t1") == HOUR_MS
    assert log_in(world.session(), made_after, "t2") == HOUR_MS
    world.keys = (KEY,)
    assert log_in(world.session(), made_after, "t2") == HOUR_MS
    with pytest.raises(SaslAuthenticationFailed):
        log_in(world.session(), made_before, "t1")
    world.keys = ()
    with pytest.raises(SaslAuthenticationFailed):
        log_in(world.session(), made_after, "t2")


def test_a_session_ends_with_the_token_or_with_the_listeners_own_limit(world: World) -> None:
    secret = world.make()
    assert log_in(world.session(max_reauth_ms=HOUR_MS // 2), secret) == HOUR_MS // 2
    assert log_in(world.session(max_reauth_ms=HOUR_MS * 2), secret) == HOUR_MS
