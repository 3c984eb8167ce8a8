"""OAUTHBEARER: which tokens are believed, and what the client of another is told (RFC 7628)."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.security.bearer_tokens import BearerTokenValidator, InvalidToken
from quorate.broker.security.listener_security import check_listeners
from quorate.broker.security.oauth_bearer import INVALID_TOKEN
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
)
from quorate.broker.security.sasl_session import SaslOptions, SaslSession
from quorate.broker.security.signing_keys import keys_in
from quorate.common.configuration import ConfigError
from tests.support.identity_provider import (
    AUDIENCE,
    EC_KEY,
    ISSUER,
    OTHER_RSA_KEY,
    RSA_KEY,
    claims,
    key_set,
    public,
    signed,
    unsigned,
)
from tests.support.sasl import WallClock, credentials

KEYS = keys_in(key_set(public(RSA_KEY, "rsa"), public(EC_KEY, "ec")))
CLOCK = WallClock()
NOW_S = CLOCK() / 1_000
RSA_PUBLIC_PEM = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def validator(**changed: Any) -> BearerTokenValidator:  # noqa: ANN401
    options = {"audiences": (AUDIENCE,), "issuer": ISSUER, **changed}
    return BearerTokenValidator(lambda key_id: KEYS.get(key_id or ""), CLOCK, **options)


def token(**changed: object) -> str:
    return signed(claims(NOW_S, **changed))


def with_symmetric_key(secret: bytes) -> str:
    """A token that is signed with the public key, as if it were a password (CVE-2015-9235)."""
    import hashlib
    import hmac

    def encoded(part: bytes) -> bytes:
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    head = encoded(json.dumps({"alg": "HS256", "kid": "rsa"}).encode())
    text = head + b"." + encoded(json.dumps(claims(NOW_S)).encode())
    return (text + b"." + encoded(hmac.digest(secret, text, hashlib.sha256))).decode()


def altered(text: str) -> str:
    """The token with the claims of another user and the signature of alice's."""
    head, body, signature = text.split(".")
    content = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**content, "sub": "root"}).encode())
    return f"{head}.{other.rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize(
    "text",
    [
        token(),
        token(aud=["other", AUDIENCE]),
        token(scope=None),
        token(scope=["a", "b"]),
        token(exp=int(NOW_S) - 29),
        token(iat=int(NOW_S) + 29),
        token(exp=NOW_S + 600.5),
        signed(claims(NOW_S), RSA_KEY, "PS256"),
        signed(claims(NOW_S), EC_KEY, "ES256", {"kid": "ec"}),
    ],
)
def test_kip_768_valid_tokens(text: str) -> None:
    assert validator().validate(text).principal == KafkaPrincipal("alice")


BAD = {
    "nothing": ("", "Not enough segments"),
    "no token": ("a.b.c", "header"),
    "expired": (token(exp=int(NOW_S) - 30), "it expired 30 s ago"),
    "issued later": (token(iat=int(NOW_S) + 31), "it is not valid yet"),
    "valid later": (token(nbf=int(NOW_S) + 31), "it is not valid yet"),
    "no expiry": (token(exp=None), "exp"),
    "no issue time": (token(iat=None), "iat"),
    "expiry that is no time": (token(exp="soon"), "exp"),
    "expiry without end": (token(exp=10**300), "exp"),
    "another audience": (token(aud="mail"), "udience"),
    "no audience": (token(aud=None), "aud"),
    "another issuer": (token(iss="https://evil.example"), "ssuer"),
    "no issuer": (token(iss=None), "iss"),
    "no name": (token(sub=None), "its claim sub has no name"),
    "a blank name": (token(sub="  "), "its claim sub has no name"),
    "a name that is no text": (token(sub=7), "its claim sub has no name"),
    "a reserved name": (token(sub="ANONYMOUS"), "nobody's name"),
    "a very long name": (token(sub="a" * 1_025), "nobody's name"),
    "scopes that are no texts": (token(scope=[1]), "its claim scope"),
    "another key": (signed(claims(NOW_S), OTHER_RSA_KEY), "ignature"),
    "altered claims": (altered(token()), "ignature"),
    "unknown key": (signed(claims(NOW_S), headers={"kid": "new"}), "its key 'new' is unknown"),
    "a key of another kind": (
        signed(claims(NOW_S), EC_KEY, "ES256", {"kid": "rsa"}),
        "its algorithm 'ES256' is not one of its key",
    ),
    "no signature": (unsigned(claims(NOW_S), kid="rsa"), "its algorithm 'none'"),
    "no signature, no key": (unsigned(claims(NOW_S)), "it names no key"),
    "signed with the public key": (with_symmetric_key(RSA_PUBLIC_PEM), "its algorithm 'HS256'"),
    "critical extension": (
        signed(claims(NOW_S), headers={"kid": "rsa", "crit": ["b64"], "b64": True}),
        "ritical",
    ),
    "key id that is no text": (unsigned(claims(NOW_S), kid=[]), "ey"),
}


@pytest.mark.parametrize("kind", BAD)
def test_kip_768_bad_tokens_are_refused_and_the_reason_does_not_quote_them(kind: str) -> None:
    text, why = BAD[kind]
    with pytest.raises(InvalidToken) as refused:
        validator().validate(text)
    assert why in str(refused.value)
    assert not text or text not in str(refused.value)


def test_kip_768_audience_and_issuer_are_checked_only_if_they_are_configured() -> None:
    lenient = validator(audiences=(), issuer="")
    assert lenient.validate(token(aud="mail", iss="https://other.example"))
    assert lenient.validate(token(aud=None, iss=None))


def test_kip_768_claims_may_have_other_names() -> None:
    named = validator(name_claim="azp", scope_claim="scp")
    assert named.validate(token(azp="bob", scp=["x"])).principal == KafkaPrincipal("bob")
    with pytest.raises(InvalidToken, match="its claim scp"):
        named.validate(token(azp="bob", scp=[""]))


# --- keys ----------------------------------------------------------------------------------------


def test_rfc_7517_only_public_keys_for_signatures_are_taken() -> None:
    symmetric = {"kty": "oct", "k": "c2VjcmV0", "kid": "oct", "alg": "HS256"}
    listed = [
        symmetric,
        public(RSA_KEY, "sealing", use="enc"),
        public(RSA_KEY, "hs", alg="HS256"),
        public(RSA_KEY, "none", alg="none"),
        {"kty": "RSA", "kid": "broken", "n": "!"},
        "no key",
        public(RSA_KEY, "one", alg="RS512", use="sig"),
        public(EC_KEY, "two"),
    ]
    keys = keys_in(json.dumps({"keys": listed}).encode())
    assert {name: sorted(key.algorithms) for name, key in keys.items()} == {
        "one": ["RS512"],
        "two": ["ES256"],
    }


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"keys": 1}', b"\xff"])
def test_rfc_7517_what_is_no_key_set_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        keys_in(content)


# --- the exchange --------------------------------------------------------------------------------


def session(max_reauth_ms: int = 0) -> SaslSession:
    who = credentials(clock=CLOCK, bearer_tokens=validator())
    options = SaslOptions(
        mechanisms=("OAUTHBEARER",),
        credentials=who,
        max_reauth_ms=max_reauth_ms,
        draw_nonce=lambda: "",
    )
    began = SaslSession(options)
    began.handshake("OAUTHBEARER", 1)
    return began


def message(text: str, head: str = "n,,") -> bytes:
    return f"{head}\x01auth=Bearer {text}\x01\x01".encode()


def step(began: SaslSession, sent: bytes) -> object:
    deferred = began.authenticate(sent)
    assert isinstance(deferred, DeferredVerification)
    return deferred.verify()


@pytest.mark.parametrize(
    ("max_reauth_ms", "lifetime_ms"), [(0, 600_000), (60_000, 60_000), (3_600_000, 600_000)]
)
def test_kip_368_the_session_ends_with_the_token(max_reauth_ms: int, lifetime_ms: int) -> None:
    began = session(max_reauth_ms)
    outcome = step(began, message(token()))
    assert isinstance(outcome, AuthenticatedClient)
    assert began.complete(outcome) == lifetime_ms
    assert began.principal == KafkaPrincipal("alice")


def test_kip_368_nobody_becomes_somebody_else() -> None:
    began = session()
    first = step(began, message(token()))
    assert isinstance(first, AuthenticatedClient)
    began.complete(first)
    began.handshake("OAUTHBEARER", 1)
    second = step(began, message(token(sub="bob")))
    assert isinstance(second, AuthenticatedClient)
    with pytest.raises(SaslAuthenticationFailed, match="authenticated as User:alice before"):
        began.complete(second)


def test_rfc_7628_a_refused_token_is_answered_in_json_and_then_authentication_fails() -> None:
    began = session()
    assert step(began, message(token(aud="mail"))) == Challenge(INVALID_TOKEN)
    assert json.loads(INVALID_TOKEN) == {"status": "invalid_token"}
    with pytest.raises(SaslAuthenticationFailed, match=r"the token is refused: .*udience"):
        began.authenticate(b"\x01")


def test_rfc_7628_no_second_token_is_looked_at() -> None:
    began = session()
    step(began, message("a.b.c"))
    with pytest.raises(SaslAuthenticationFailed):
        began.authenticate(message(token()))


def test_rfc_7628_a_client_acts_for_itself_alone() -> None:
    assert isinstance(step(session(), message(token(), "n,a=alice,")), AuthenticatedClient)
    with pytest.raises(SaslAuthenticationFailed, match="acting for another"):
        step(session(), message(token(), "n,a=bob,"))


def test_rfc_7628_other_fields_are_passed_over() -> None:
    sent = f"n,,\x01host=a\x01auth=bearer {token()}\x01port=1\x01\x01".encode()
    assert isinstance(step(session(), sent), AuthenticatedClient)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01host=a\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_rfc_7628_malformed_messages_are_refused(sent: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed, match="the OAUTHBEARER message"):
        session().authenticate(sent)


def test_kip_768_the_mechanism_needs_keys() -> None:
    given = {
        "broker.id": 1,
        "quorum.bootstrap.servers": "127.0.0.1:1",
        "log.dir": "/nowhere",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.jwks\.endpoint\.url"):
        check_listeners(BROKER_SPEC.parse(given))
    url = {"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys"}
    check_listeners(BROKER_SPEC.parse({**given, **url}))
    with pytest.raises(ConfigError, match="must be an https, http or file URL"):
        BROKER_SPEC.parse({"sasl.oauthbearer.jwks.endpoint.url": "ftp://a"})


def test_pyjwt_alone_would_be_too_lenient() -> None:
    """What the validator checks beside the library: the key decides on the algorithm."""
    rs512 = keys_in(key_set(public(RSA_KEY, "rsa", alg="RS512")))
    strict = BearerTokenValidator(lambda key_id: rs512.get(key_id or ""), CLOCK)
    assert jwt.decode(
        token(), RSA_KEY.public_key(), ["RS256"], options={"verify_aud": False, "verify_exp": False}
    )
    with pytest.raises(InvalidToken, match="'RS256' is not one of its key: RS512"):
        strict.validate(token())
