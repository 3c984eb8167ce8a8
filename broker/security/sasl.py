"""The SASL side of one connection: which request may come next, and who the client has become.

Pure: it is told the time, and what takes long it hands back as ``Costly``. A client begins with
SaslHandshake, goes on with SaslAuthenticate (after a handshake of version 0: with bare tokens), and
may then ask for what it likes, until its session ends; before that it may authenticate again, as
the same principal by the same mechanism (KIP-368).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.security.logins import Logins
from broker.security.mechanism import Exchange, LoggedIn, SaslRefused, Step
from broker.security.plain import PlainServer
from broker.security.principal import ANONYMOUS, KafkaPrincipal
from broker.security.scram import MECHANISMS as SCRAM
from broker.security.scram import ScramServer

PLAIN: Final = "PLAIN"
SUPPORTED: Final = (PLAIN, *SCRAM)

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_BEFORE: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""What a client may ask before it has authenticated."""


class OutOfOrder(Exception):
    """A SASL request that does not fit the state of the connection: ILLEGAL_SASL_STATE."""


class UnsupportedMechanism(Exception):
    """Not one of sasl.enabled.mechanisms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOptions:
    """What a listener asks for. ``max_reauth_ms``: connections.max.reauth.ms, 0: sessions last.

    ``draw_nonce``: printable, without commas, never the same.
    """

    mechanisms: tuple[str, ...]
    logins: Logins
    max_reauth_ms: int
    draw_nonce: Callable[[], str]


class SaslSession:
    """One connection. ``principal`` is ANONYMOUS until it has authenticated."""

    def __init__(self, options: SaslOptions) -> None:
        self.principal: KafkaPrincipal = ANONYMOUS
        self.authenticated = False
        self.bare_tokens = False
        """The next frames are bare tokens: the handshake was of version 0."""
        self._options = options
        self._mechanism: str | None = None
        self._exchange: Exchange | None = None
        self._ends_ms: int | None = None
        self.failed = False

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._options.mechanisms

    @property
    def mechanism(self) -> str:
        """The one under way or used; empty before the handshake."""
        return self._mechanism or ""

    def why_not(self, api_key: int) -> str | None:
        """Why a request of that API is not taken now; None: it is."""
        if self.failed:
            return "authentication has failed on this connection"
        if api_key in _BEFORE:
            return None
        if not self.authenticated:
            return "the client has not authenticated: SaslHandshake and SaslAuthenticate come first"
        if self._ends_ms is not None and self._options.logins.now_ms() >= self._ends_ms:
            return "the session has ended and the client did not authenticate again"
        return None

    def handshake(self, mechanism: str, version: int) -> None:
        """The client chooses a mechanism.

        Raises:
            OutOfOrder: an exchange is under way, or it is another mechanism than before.
            UnsupportedMechanism: not enabled.
        """
        if self._exchange is not None:
            raise OutOfOrder("SaslHandshake within an exchange")
        if self.authenticated and mechanism != self._mechanism:
            raise OutOfOrder(f"authenticated by {self._mechanism}, and now {mechanism!r:.80}")
        if mechanism not in self._options.mechanisms:
            raise UnsupportedMechanism(
                f"{mechanism!r:.80}: {', '.join(self._options.mechanisms)} are enabled"
            )
        self._mechanism = mechanism
        self._exchange = self._begin(mechanism)
        self.bare_tokens = version == 0

    def authenticate(self, token: bytes) -> Step:
        """The client's next token. Of ``Costly`` and ``LoggedIn``, tell ``concluded``.

        Raises:
            OutOfOrder: there was no handshake.
            SaslRefused: authentication failed; nothing but closing is left.
        """
        if self._exchange is None:
            raise OutOfOrder("SaslAuthenticate without a SaslHandshake before it")
        try:
            return self._exchange.step(token)
        except SaslRefused:
            self.refused()
            raise

    def concluded(self, outcome: LoggedIn) -> int:
        """The client has proved who it is; returns its session's lifetime in ms, 0: no end.

        Raises:
            SaslRefused: it is somebody else than before.
        """
        if self.authenticated and outcome.principal != self.principal:
            self.refused()
            raise SaslRefused(f"authenticated as {self.principal} before")
        self.principal = outcome.principal
        self.authenticated = True
        self.bare_tokens = False
        self._exchange = None
        lifetime_ms = self._lifetime_ms(outcome.expiry_ms)
        self._ends_ms = self._options.logins.now_ms() + lifetime_ms if lifetime_ms else None
        return lifetime_ms

    def refused(self) -> None:
        """Authentication failed: nothing more is taken."""
        self.failed = True
        self._exchange = None

    def _begin(self, mechanism: str) -> Exchange:
        logins = self._options.logins
        if mechanism == PLAIN:
            return PlainServer(logins.password)
        return ScramServer(SCRAM[mechanism], logins.scram, self._options.draw_nonce())

    def _lifetime_ms(self, expiry_ms: int | None) -> int:
        limits = [self._options.max_reauth_ms] if self._options.max_reauth_ms else []
        if expiry_ms is not None:
            limits.append(max(1, expiry_ms - self._options.logins.now_ms()))
        return min(limits, default=0)
