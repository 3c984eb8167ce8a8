"""SASL PLAIN (RFC 4616), and clear-text passwords that are checked against SCRAM credentials.

There is no other store of passwords. A user who may log in by SCRAM may also log in by PLAIN, if
the listener offers it. PLAIN should be used on TLS listeners only. Clients of the gRPC listener
also send their passwords in clear text, over TLS.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    DeferredVerification,
    SaslAuthenticationFailed,
    SaslStep,
)
from quorate.broker.security.scram import BY_NUMBER, password_fits
from quorate.broker.security.scram_decoys import ScramDecoys
from quorate.metadata_log.image import Image, ScramKey

CheckPassword: TypeAlias = Callable[[str, str], KafkaPrincipal | None]
"""Takes a user and a password. Returns the principal, or None if the user is unknown or the
password is wrong.
"""


def verify_password(
    image: Image, decoys: ScramDecoys, user: str, password: str
) -> KafkaPrincipal | None:
    """Return the principal, or None if there is no such user or the password is wrong.

    This computes for milliseconds, without the interpreter lock, so it must not run on the event
    loop. An unknown user costs as much time as a known one.
    """
    # The strongest credential of the user is checked. Normally all of them have the same password.
    for number in sorted(BY_NUMBER, reverse=True):
        stored = image.scram.get(ScramKey(user, number))
        if stored is not None:
            fits = password_fits(BY_NUMBER[number], stored, password)
            return KafkaPrincipal(user) if fits else None
    mechanism = decoys.password_mechanism(user)
    password_fits(mechanism, decoys.credential(user, mechanism), password)
    return None


class Passwords(Protocol):
    """Checks passwords; ``password_cache.PasswordCache`` implements it."""

    def find(self, user: str, password: str) -> KafkaPrincipal | None:
        """Return the principal if this password is known to be right."""

    def verification(self, user: str, password: str) -> Callable[[], KafkaPrincipal | None]:
        """Return a function that verifies the password; it takes milliseconds."""


class PlainSaslServer:
    """The server's side of one PLAIN exchange, which consists of a single message."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> SaslStep:
        """Handle the message, as ``SaslExchange.step`` describes."""
        try:
            authzid, user, password = message.decode().split("\0")
        except ValueError:  # UnicodeDecodeError is one
            raise SaslAuthenticationFailed("the PLAIN message is malformed") from None
        if not user or not password:
            raise SaslAuthenticationFailed("the PLAIN message lacks a user or a password")
        if authzid not in ("", user):
            raise SaslAuthenticationFailed("acting for another user is not supported")

        known = self._passwords.find(user, password)
        if known is not None:
            return AuthenticatedClient(b"", known)
        verification = self._passwords.verification(user, password)

        def verify() -> AuthenticatedClient:
            principal = verification()
            if principal is None:
                raise SaslAuthenticationFailed("the password does not fit")
            return AuthenticatedClient(b"", principal)

        return DeferredVerification(user, verify)
