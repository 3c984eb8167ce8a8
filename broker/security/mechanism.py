"""What the steps of a SASL exchange may come to, whatever the mechanism."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from broker.security.principal import KafkaPrincipal


class SaslRefused(Exception):
    """Authentication failed. The message is for our log: the client is told nothing but that."""


class Challenge(NamedTuple):
    """The client is to go on."""

    answer: bytes


class LoggedIn(NamedTuple):
    """The client is who it says."""

    answer: bytes
    principal: KafkaPrincipal
    expiry_ms: int | None = None
    """Wall clock; None: as long as the cluster allows."""


class Costly(NamedTuple):
    """The verdict takes milliseconds of computing: to be asked for off the event loop.

    ``verdict`` returns or raises as ``step`` does.
    """

    verdict: Callable[[], LoggedIn]


Step: TypeAlias = Challenge | LoggedIn | Costly


class Exchange(Protocol):
    """One exchange on the server's side; pure but for ``Costly``."""

    def step(self, message: bytes) -> Step:
        """The answer to the client's next message.

        Raises:
            SaslRefused: it is not who it says, or does not keep to the mechanism.
        """
