"""The results of the steps of a SASL exchange, for all mechanisms."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from quorate.broker.security.principal import KafkaPrincipal


class SaslAuthenticationFailed(Exception):
    """Authentication failed. The message is for the broker's log. The client learns only that it
    failed.
    """


class Challenge(NamedTuple):
    """The client must send another message."""

    response: bytes


class AuthenticatedClient(NamedTuple):
    """The client has proved its identity."""

    response: bytes
    principal: KafkaPrincipal
    expiry_ms: int | None = None
    """The wall clock time in ms at which the login ends, or None if only the limit of the listener
    applies.
    """


class DeferredVerification(NamedTuple):
    """The verification takes milliseconds of computing, so it must run outside the event loop.

    ``verify`` returns or raises like ``SaslExchange.step``. ``user`` is who the client claims to
    be.
    """

    user: str
    verify: Callable[[], AuthenticatedClient | Challenge]


SaslStep: TypeAlias = Challenge | AuthenticatedClient | DeferredVerification


class SaslExchange(Protocol):
    """The server's side of one exchange. It has no side effects; computing that takes long is
    returned as a ``DeferredVerification``.
    """

    def step(self, message: bytes) -> SaslStep:
        """Return the response to the client's next message.

        Raises:
            SaslAuthenticationFailed: the client did not prove its identity, or its message does not
                follow the mechanism.
        """
