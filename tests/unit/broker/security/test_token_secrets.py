"""Secrets of delegation tokens: made, found and proven, and never kept in the image (KIP-48)."""

import base64
import hashlib
import hmac

import pytest

from quorate.broker.security.token_secrets import (
    TokenIndex,
    TokenLogin,
    TokenLogins,
    secret_of,
    token_login,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import DelegationTokenRemoved, DelegationTokenSet
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder

KEY, OLD = b"the newest key", b"the key before"
NOW_MS = 1_000


def token(token_id: str, expiry_ms: int = 2_000) -> DelegationTokenSet:
    return DelegationTokenSet(
        token_id=token_id,
        owner="User:al:ice",
        requester="User:bob",
        renewers=(),
        issue_ms=500,
        expiry_ms=expiry_ms,
        max_ms=5_000,
    )


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    assert log.write_as_controller(token("t1")).ok
    return log


@pytest.fixture
def image(log: MetadataLogBuilder) -> Image:
    return log.image


def proof(login: TokenLogin, secret: bytes, digest: str, message: bytes) -> bytes:
    """Return the proof that a client with ``secret`` sends (RFC 5802)."""
    password = base64.b64encode(secret)
    salted = hashlib.pbkdf2_hmac(digest, password, login.salt, login.iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def accepted(login: TokenLogin, given: bytes, digest: str, message: bytes) -> bool:
    for secret in login.derive():
        signature = hmac.digest(secret.stored_key, message, digest)
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        if hashlib.new(digest, client_key).digest() == secret.stored_key:
            return True
    return False


def test_a_secret_is_kafkas_hmac_of_the_token_id() -> None:
    expected = hmac.new(KEY, b"t1", hashlib.sha512).digest()
    assert secret_of(KEY, "t1") == expected
    assert len(expected) == 64


@pytest.mark.parametrize(
    ("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_the_holder_of_the_secret_authenticates_as_its_owner(
    image: Image, mechanism: str, digest: str
) -> None:
    login = token_login(image, "t1", mechanism, NOW_MS, (KEY,))
    assert login is not None
    assert (str(login.principal), login.principal.token_authenticated) == ("User:al:ice", True)
    assert login.expiry_ms == 2_000
    good = proof(login, secret_of(KEY, "t1"), digest, b"auth message")
    assert accepted(login, good, digest, b"auth message")
    assert not accepted(login, good, digest, b"another exchange")


def test_a_forged_secret_is_not_accepted(image: Image) -> None:
    login = token_login(image, "t1", "SCRAM-SHA-256", NOW_MS, (KEY, OLD))
    assert login is not None
    for forged in (secret_of(b"a guess", "t1"), secret_of(KEY, "t2"), b"t1", b""):
        assert not accepted(login, proof(login, forged, "sha256", b"m"), "sha256", b"m")


def test_a_token_of_an_older_key_stays_good_until_that_key_is_withdrawn(image: Image) -> None:
    made_before = secret_of(OLD, "t1")
    rotated = token_login(image, "t1", "SCRAM-SHA-512", NOW_MS, (KEY, OLD))
    assert rotated is not None
    assert accepted(rotated, proof(rotated, made_before, "sha512", b"m"), "sha512", b"m")
    withdrawn = token_login(image, "t1", "SCRAM-SHA-512", NOW_MS, (KEY,))
    assert withdrawn is not None
    assert not accepted(withdrawn, proof(withdrawn, made_before, "sha512", b"m"), "sha512", b"m")
    assert (rotated.salt, rotated.iterations) == (withdrawn.salt, withdrawn.iterations)


def test_an_ended_token_no_longer_authenticates(image: Image) -> None:
    found = [token_login(image, "t1", "SCRAM-SHA-256", now, (KEY,)) for now in (2_000, 2_001)]
    assert [one is not None for one in found] == [True, False]


def test_nobody_authenticates_without_a_token_a_key_or_a_mechanism(image: Image) -> None:
    assert token_login(image, "t2", "SCRAM-SHA-256", NOW_MS, (KEY,)) is None
    assert token_login(image, "t1", "SCRAM-SHA-256", NOW_MS, ()) is None
    assert token_login(image, "t1", "PLAIN", NOW_MS, (KEY,)) is None


def test_a_login_is_asked_of_the_newest_image_and_keys(log: MetadataLogBuilder) -> None:
    keys: tuple[bytes, ...] = ()
    logins = TokenLogins(ShownImage(lambda: log.image), lambda: keys)
    assert logins.find("t1", "SCRAM-SHA-256", NOW_MS) is None
    keys = (KEY,)
    assert logins.find("t1", "SCRAM-SHA-256", NOW_MS) is not None
    log.write_as_controller(DelegationTokenRemoved(token_id="t1"))
    assert logins.find("t1", "SCRAM-SHA-256", NOW_MS) is None


def test_secrets_are_not_in_the_image_and_not_shown(image: Image) -> None:
    login = token_login(image, "t1", "SCRAM-SHA-256", NOW_MS, (KEY,))
    assert login is not None
    shown = f"{login!r} {login.derive()!r} {image!r}"
    for secret in (
        secret_of(KEY, "t1"),
        login.derive()[0].stored_key,
        login.derive()[0].server_key,
    ):
        assert repr(secret) not in shown
        assert secret.hex() not in shown


def test_a_token_is_found_by_its_secret_by_any_key(log: MetadataLogBuilder) -> None:
    index = TokenIndex()
    assert index.find(log.image, (KEY,), secret_of(KEY, "t1")) == "t1"
    assert index.find(log.image, (KEY,), secret_of(OLD, "t1")) is None
    assert index.find(log.image, (KEY, OLD), secret_of(OLD, "t1")) == "t1"
    log.write_as_controller(token("t2"))
    assert index.find(log.image, (KEY, OLD), secret_of(OLD, "t2")) == "t2"
    assert index.find(log.image, (KEY,), secret_of(OLD, "t2")) is None
    log.write_as_controller(DelegationTokenRemoved(token_id="t1"))
    assert index.find(log.image, (KEY,), secret_of(KEY, "t1")) is None
    assert index.find(log.image, (KEY,), secret_of(KEY, "t2")) == "t2"
