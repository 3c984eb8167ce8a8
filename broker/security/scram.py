"""SCRAM (RFC 5802, RFC 7677): credentials, and the server's side of an exchange.

What the broker stores proves a password without being it. Passwords are taken as UTF-8, without
SASLprep, as Kafka and its clients take them.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.security.mechanism import Challenge, LoggedIn, SaslRefused, Step
from broker.security.principal import KafkaPrincipal
from metadata_log.records import ScramCredential


class ScramMechanism(NamedTuple):
    """``number``: Kafka's. ``hash_name``: hashlib's."""

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

DEFAULT_ITERATIONS: Final = 4_096


_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<more>(?:,.+)?))",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]+)*),p=(?P<proof>[^,]+)",
    re.DOTALL,
)
_MESSAGE_BYTES_MAX: Final = 4_096
"""Names, nonces and proofs are short: no expression is run over more."""

_TOKEN_EXTENSION: Final = "tokenauth=true"
"""Kafka's: the user is a delegation token (KIP-48)."""


class Keys(Protocol):
    """What verifies a proof and signs the answer."""

    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


class ScramLogin(NamedTuple):
    """Who one may log in as, and by which secrets: any of ``keys`` will do."""

    principal: KafkaPrincipal
    salt: bytes
    iterations: int
    keys: Sequence[Keys]
    expiry_ms: int | None = None
    """Wall clock; the login ends then."""


FindLogin = Callable[[str, str, bool], ScramLogin]
"""(user, mechanism, whether it is a delegation token) → its login; for whom there is none, one that
no proof fits, so that nobody learns who there is."""


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Takes milliseconds, without the interpreter lock."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What is stored of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=_hmac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )


def password_fits(mechanism: ScramMechanism, stored: ScramCredential, password: str) -> bool:
    """Whether it is the password; takes as long whatever the answer."""
    salted = salted_password(mechanism, password, stored.salt, stored.iterations)
    made = credential(mechanism, salted, stored.salt, stored.iterations)
    return hmac.compare_digest(made.stored_key, stored.stored_key)


class ScramServer:
    """One exchange: client-first in, challenge out, client-final in, verdict out."""

    def __init__(self, mechanism: ScramMechanism, find: FindLogin, nonce: str) -> None:
        """``nonce``: random, printable, without commas, never used again."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._login: ScramLogin | None = None
        self._first_bare = ""
        self._server_first = ""
        self._binding = ""

    def step(self, message: bytes) -> Step:
        """The answer to the client's next message.

        Raises:
            SaslRefused: malformed, or the proof is wrong.
        """
        if len(message) > _MESSAGE_BYTES_MAX:
            raise SaslRefused("a SCRAM message is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise SaslRefused("a SCRAM message is not UTF-8") from None
        return self._first(text) if self._login is None else self._final(text, self._login)

    def _first(self, text: str) -> Challenge:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise SaslRefused("the client's first SCRAM message is malformed")
        user = _saslname(found["user"])
        if found["authzid"] and _saslname(found["authzid"]) != user:
            raise SaslRefused("acting for another user is not supported")
        as_token = _TOKEN_EXTENSION in found["more"].split(",")
        self._login = self._find(user, self._mechanism.name, as_token)
        self._nonce = found["nonce"] + self._nonce
        self._first_bare = found["bare"]
        self._binding = text[: len(text) - len(self._first_bare)]
        salt = base64.b64encode(self._login.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._login.iterations}"
        return Challenge(self._server_first.encode())

    def _final(self, text: str, login: ScramLogin) -> LoggedIn:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise SaslRefused("the client's final SCRAM message is malformed")
        if _base64(found["binding"]) != self._binding.encode():
            raise SaslRefused("the client's channel binding changed within the exchange")
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise SaslRefused("the client answered another challenge")
        signed = ",".join((self._first_bare, self._server_first, found["unproved"])).encode()
        proof = _base64(found["proof"])
        fitting = [keys for keys in login.keys if self._proves(proof, keys.stored_key, signed)]
        if not fitting:
            raise SaslRefused("the proof does not fit")
        signature = _hmac(self._mechanism, fitting[0].server_key, signed)
        answer = b"v=" + base64.b64encode(signature)
        return LoggedIn(answer, login.principal, login.expiry_ms)

    def _proves(self, proof: bytes, stored_key: bytes, signed: bytes) -> bool:
        signature = _hmac(self._mechanism, stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        made = hashlib.new(self._mechanism.hash_name, client_key).digest()
        return hmac.compare_digest(made, stored_key)


def nobody(mechanism: ScramMechanism, user: str, pepper: bytes) -> ScramLogin:
    """The login of somebody who does not exist: the same salt each time, and no proof fits.

    ``pepper``: a secret of this process.
    """
    salt = hmac.digest(pepper, f"{mechanism.name},{user}".encode(), "sha256")[:16]
    return ScramLogin(KafkaPrincipal(user), salt, DEFAULT_ITERATIONS, ())


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _saslname(text: str) -> str:
    """``=2C`` and ``=3D`` stand for comma and equals sign, and nothing else is escaped."""
    if re.search("=(?!2C|3D)", text):
        raise SaslRefused("a SCRAM user name is badly escaped")
    return text.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslRefused("a SCRAM message holds bad base64") from None
