"""Who is behind the gRPC call that is being served, for whoever serves it."""

from contextvars import ContextVar
from typing import Final, NamedTuple

from broker.security.principal import ANONYMOUS, KafkaPrincipal


class Caller(NamedTuple):
    """Who asks: a client of the gRPC listener, or the one that a request was forwarded for."""

    principal: KafkaPrincipal
    client_host: str


_NOBODY: Final = Caller(ANONYMOUS, "")
_CALLER: Final[ContextVar[Caller]] = ContextVar("grpc_caller", default=_NOBODY)


def caller() -> Caller:
    """Who makes the call that this task serves; ANONYMOUS where nobody had to say."""
    return _CALLER.get()


def set_caller(found: Caller) -> None:
    """For the rest of this task: each call is served in a task of its own."""
    _CALLER.set(found)
