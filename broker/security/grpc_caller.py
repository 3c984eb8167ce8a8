"""The client of the gRPC call that is being served."""

from contextvars import ContextVar
from typing import Final, NamedTuple

from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal


class Caller(NamedTuple):
    """The client of a call: a client of the gRPC listener, or the client for which a request was
    forwarded.
    """

    principal: KafkaPrincipal
    client_host: str


_NOBODY: Final = Caller(ANONYMOUS, "")
_CALLER: Final[ContextVar[Caller]] = ContextVar("grpc_caller", default=_NOBODY)


def caller() -> Caller:
    """Return the client of the call that this task serves. It is ANONYMOUS if the listener requires
    no authentication.
    """
    return _CALLER.get()


def set_caller(found: Caller) -> None:
    """Set the caller for the rest of this task. Each call is served in a task of its own."""
    _CALLER.set(found)
