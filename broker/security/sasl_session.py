"""The SASL state of one connection: the requests that may come next, and the client's principal.

This module does no I/O: it takes the time from ``CredentialProvider.now_ms``, and returns work that
takes long as a ``DeferredVerification``. A client begins with SaslHandshake and continues with
SaslAuthenticate, or with bare tokens after a handshake of version 0. Then it may send any request
until its session ends. Before that it may authenticate again, as the same principal by the same
mechanism (KIP-368).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.failed_logins import FailedLogins
from quorate.broker.security.login_queue import LoginQueue
from quorate.broker.security.oauth_bearer import OAUTHBEARER, OAuthBearerSaslServer
from quorate.broker.security.plain_passwords import PlainSaslServer
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.broker.security.sasl_exchange import (
    AuthenticatedClient,
    SaslAuthenticationFailed,
    SaslExchange,
    SaslStep,
)
from quorate.broker.security.scram import MECHANISMS as SCRAM
from quorate.broker.security.scram import ScramSaslServer

PLAIN: Final = "PLAIN"
SUPPORTED: Final = (PLAIN, *SCRAM, OAUTHBEARER)

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_BEFORE: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The APIs that a client may use before it has authenticated."""


class IllegalSaslState(Exception):
    """A SASL request does not fit the state of the connection. The error code is
    ILLEGAL_SASL_STATE.
    """


class UnsupportedSaslMechanism(Exception):
    """The mechanism is not in sasl.enabled.mechanisms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOptions:
    """The SASL configuration of a listener.

    ``max_reauth_ms`` is connections.max.reauth.ms; with 0 sessions do not end. ``draw_nonce``
    returns a nonce that is printable, has no commas and is never used again. ``logins`` are the
    logins of this listener that wait for their passwords to be hashed, and ``failures`` those that
    failed and are not answered yet.
    """

    mechanisms: tuple[str, ...]
    credentials: CredentialProvider
    max_reauth_ms: int
    draw_nonce: Callable[[], str]
    logins: LoginQueue = field(default_factory=LoginQueue)
    failures: FailedLogins = field(default_factory=FailedLogins)


class SaslSession:
    """The SASL session of one connection. ``principal`` is ANONYMOUS until the client has
    authenticated.
    """

    def __init__(self, options: SaslOptions) -> None:
        self.principal: KafkaPrincipal = ANONYMOUS
        self.authenticated = False
        self.bare_tokens = False
        """True if the next frames are bare tokens, because the handshake was of version 0."""
        self._options = options
        self._mechanism: str | None = None
        self._exchange: SaslExchange | None = None
        self._ends_ms: int | None = None
        self.failed = False

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._options.mechanisms

    @property
    def logins(self) -> LoginQueue:
        return self._options.logins

    @property
    def failures(self) -> FailedLogins:
        return self._options.failures

    @property
    def mechanism(self) -> str:
        """The mechanism of the exchange, or an empty text before the handshake."""
        return self._mechanism or ""

    def refusal_of(self, api_key: int) -> str | None:
        """Return why a request of that API is refused now, or None if it is admitted."""
        if self.failed:
            return "authentication has failed on this connection"
        if api_key in _BEFORE:
            return None
        if not self.authenticated:
            return "the client has not authenticated: SaslHandshake and SaslAuthenticate come first"
        if self._ends_ms is not None and self._options.credentials.now_ms() >= self._ends_ms:
            return "the session has ended and the client did not authenticate again"
        return None

    def handshake(self, mechanism: str, version: int) -> None:
        """Begin an exchange by the mechanism that the client has chosen.

        Raises:
            IllegalSaslState: an exchange is in progress, or the client authenticated by another
                mechanism before.
            UnsupportedSaslMechanism: the mechanism is not enabled.
        """
        if self._exchange is not None:
            raise IllegalSaslState("SaslHandshake within an exchange")
        if self.authenticated and mechanism != self._mechanism:
            raise IllegalSaslState(f"authenticated by {self._mechanism}, and now {mechanism!r:.80}")
        if mechanism not in self._options.mechanisms:
            raise UnsupportedSaslMechanism(
                f"{mechanism!r:.80}: {', '.join(self._options.mechanisms)} are enabled"
            )
        self._mechanism = mechanism
        self._exchange = self._begin(mechanism)
        self.bare_tokens = version == 0

    def authenticate(self, token: bytes) -> SaslStep:
        """Handle the client's next token. A verified identity must be passed to ``complete``
        afterwards.

        Raises:
            IllegalSaslState: there was no handshake.
            SaslAuthenticationFailed: authentication failed, and the connection must be closed.
        """
        if self._exchange is None:
            raise IllegalSaslState("SaslAuthenticate without a SaslHandshake before it")
        try:
            return self._exchange.step(token)
        except SaslAuthenticationFailed:
            self.fail()
            raise

    def complete(self, outcome: AuthenticatedClient) -> int:
        """Accept the identity that the client has proved. Return the lifetime of its session in ms,
        or 0 if the session does not end.

        Raises:
            SaslAuthenticationFailed: the client authenticated as another principal before.
        """
        if self.authenticated and outcome.principal != self.principal:
            self.fail()
            raise SaslAuthenticationFailed(f"authenticated as {self.principal} before")
        self.principal = outcome.principal
        self.authenticated = True
        self.bare_tokens = False
        self._exchange = None
        lifetime_ms = self._lifetime_ms(outcome.expiry_ms)
        self._ends_ms = self._options.credentials.now_ms() + lifetime_ms if lifetime_ms else None
        return lifetime_ms

    def fail(self) -> None:
        """Record that authentication failed. Nothing more is accepted from the client."""
        self.failed = True
        self._exchange = None

    def _begin(self, mechanism: str) -> SaslExchange:
        credentials = self._options.credentials
        if mechanism == PLAIN:
            return PlainSaslServer(credentials.passwords)
        if mechanism == OAUTHBEARER:
            assert credentials.bearer_tokens is not None, "configurations without keys are refused"
            return OAuthBearerSaslServer(credentials.bearer_tokens)
        return ScramSaslServer(SCRAM[mechanism], credentials.scram, self._options.draw_nonce())

    def _lifetime_ms(self, expiry_ms: int | None) -> int:
        limits = [self._options.max_reauth_ms] if self._options.max_reauth_ms else []
        if expiry_ms is not None:
            limits.append(max(1, expiry_ms - self._options.credentials.now_ms()))
        return min(limits, default=0)
