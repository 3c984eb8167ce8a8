"""SCRAM (RFC 5802, RFC 7677): credentials, and the server's side of an exchange.

The data that the broker stores can verify a password, but it is not the password. Passwords are
encoded as UTF-8, without SASLprep, as in Kafka and its clients.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
    SaslStep,
)
from quorate.metadata_log.records import ScramCredential


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism, with its ``number`` in Kafka and its ``hash_name`` in hashlib."""

    name: str
    number: int
    hash_name: str


MECHANISMS: Final = {
    one.name: one
    for one in (
        ScramMechanism("SCRAM-SHA-256", 1, "sha256"),
        ScramMechanism("SCRAM-SHA-512", 2, "sha512"),
    )
}
BY_NUMBER: Final = {one.number: one for one in MECHANISMS.values()}

_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<more>(?:,.+)?))",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]+)*),p=(?P<proof>[^,]+)",
    re.DOTALL,
)
_MESSAGE_BYTES_MAX: Final = 4_096
"""The size of the longest SCRAM message. Names, nonces and proofs are short, and regular
expressions are not run over longer messages.
"""

_TOKEN_EXTENSION: Final = "tokenauth=true"
"""Kafka's extension that marks the user name as the id of a delegation token (KIP-48)."""


class ScramKeys(Protocol):
    """The keys that verify a client's proof and sign the server's response."""

    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


class ScramLogin(NamedTuple):
    """The credentials of a user or a token: its principal, and the secrets that prove it. A proof
    by any of ``keys`` is enough. If ``derive`` is set, it computes more such keys for milliseconds.
    """

    principal: KafkaPrincipal
    salt: bytes
    iterations: int
    keys: Sequence[ScramKeys]
    expiry_ms: int | None = None
    """The wall clock time in ms at which the login ends, or None if it has no end of its own."""
    derive: Callable[[], Sequence[ScramKeys]] | None = None


FindLogin = Callable[[str, str, bool], ScramLogin]
"""Takes a user, a mechanism, and whether the user is a delegation token. Returns the credentials.
For a user that does not exist, it returns credentials that no proof fits, so that a client cannot
find out which users exist.
"""


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Hash a password. This takes milliseconds, without the interpreter lock."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential that is stored for a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=_hmac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )


def password_fits(mechanism: ScramMechanism, stored: ScramCredential, password: str) -> bool:
    """Return whether the password is right. The time does not depend on the result."""
    salted = salted_password(mechanism, password, stored.salt, stored.iterations)
    made = credential(mechanism, salted, stored.salt, stored.iterations)
    return hmac.compare_digest(made.stored_key, stored.stored_key)


class ScramSaslServer:
    """The server's side of one exchange. It receives client-first, sends the challenge, receives
    client-final, and sends the result.
    """

    def __init__(self, mechanism: ScramMechanism, find: FindLogin, nonce: str) -> None:
        """``nonce`` is random, printable, has no commas and is never used again."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._login: ScramLogin | None = None
        self._first_bare = ""
        self._server_first = ""
        self._binding = ""

    def step(self, message: bytes) -> SaslStep:
        """Return the response to the client's next message.

        Raises:
            SaslAuthenticationFailed: the message is malformed, or the proof is wrong.
        """
        if len(message) > _MESSAGE_BYTES_MAX:
            raise SaslAuthenticationFailed("a SCRAM message is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationFailed("a SCRAM message is not UTF-8") from None
        return self._first(text) if self._login is None else self._final(text, self._login)

    def _first(self, text: str) -> Challenge:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise SaslAuthenticationFailed("the client's first SCRAM message is malformed")
        user = _saslname(found["user"])
        if found["authzid"] and _saslname(found["authzid"]) != user:
            raise SaslAuthenticationFailed("acting for another user is not supported")
        as_token = _TOKEN_EXTENSION in found["more"].split(",")
        self._login = self._find(user, self._mechanism.name, as_token)
        self._nonce = found["nonce"] + self._nonce
        self._first_bare = found["bare"]
        self._binding = text[: len(text) - len(self._first_bare)]
        salt = base64.b64encode(self._login.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._login.iterations}"
        return Challenge(self._server_first.encode())

    def _final(self, text: str, login: ScramLogin) -> SaslStep:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise SaslAuthenticationFailed("the client's final SCRAM message is malformed")
        if _base64(found["binding"]) != self._binding.encode():
            raise SaslAuthenticationFailed(
                "the client's channel binding changed within the exchange"
            )
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise SaslAuthenticationFailed("the client answered another challenge")
        signed = ",".join((self._first_bare, self._server_first, found["unproved"])).encode()
        proof = _base64(found["proof"])
        derive = login.derive
        if derive is None:
            return self._verified(login, login.keys, proof, signed)
        return DeferredVerification(
            login.principal.name, lambda: self._verified(login, derive(), proof, signed)
        )

    def _verified(
        self, login: ScramLogin, keys: Sequence[ScramKeys], proof: bytes, signed: bytes
    ) -> AuthenticatedClient:
        fitting = [one for one in keys if self._proves(proof, one.stored_key, signed)]
        if not fitting:
            raise SaslAuthenticationFailed("the proof does not fit")
        signature = _hmac(self._mechanism, fitting[0].server_key, signed)
        response = b"v=" + base64.b64encode(signature)
        return AuthenticatedClient(response, login.principal, login.expiry_ms)

    def _proves(self, proof: bytes, stored_key: bytes, signed: bytes) -> bool:
        signature = _hmac(self._mechanism, stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        made = hashlib.new(self._mechanism.hash_name, client_key).digest()
        return hmac.compare_digest(made, stored_key)


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _saslname(text: str) -> str:
    """Unescape a name: ``=2C`` stands for a comma and ``=3D`` for an equals sign. Nothing else is
    escaped.
    """
    if re.search("=(?!2C|3D)", text):
        raise SaslAuthenticationFailed("a SCRAM user name is badly escaped")
    return text.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslAuthenticationFailed("a SCRAM message holds bad base64") from None
