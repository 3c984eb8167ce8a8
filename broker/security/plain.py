"""SASL PLAIN (RFC 4616): a password in clear, held against the user's SCRAM credential.

There is no other store of passwords: whoever may log in by SCRAM may by PLAIN, where the listener
offers it. It belongs on TLS listeners.
"""

from broker.security.mechanism import Costly, LoggedIn, SaslRefused
from broker.security.passwords import CheckPassword


class PlainServer:
    """One exchange: a single message."""

    def __init__(self, check: CheckPassword) -> None:
        self._check = check

    def step(self, message: bytes) -> Costly:
        """As ``Exchange.step``."""
        try:
            authzid, user, password = message.decode().split("\0")
        except ValueError:  # UnicodeDecodeError is one
            raise SaslRefused("the PLAIN message is malformed") from None
        if not user or not password:
            raise SaslRefused("the PLAIN message lacks a user or a password")
        if authzid not in ("", user):
            raise SaslRefused("acting for another user is not supported")

        def verdict() -> LoggedIn:
            principal = self._check(user, password)
            if principal is None:
                raise SaslRefused("the password does not fit")
            return LoggedIn(b"", principal)

        return Costly(verdict)
