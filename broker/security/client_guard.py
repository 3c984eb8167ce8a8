"""Who clients of the gRPC listener are, before any service looks at what they want.

A client cannot say who it is in a request: whatever its context claims is replaced by what its
certificate or its password shows (F5). What only brokers may ask is not served to it at all.
"""

from typing import Any, Final

import grpc

from broker.security.grpc_caller import Caller, set_caller
from broker.security.grpc_identity import Authenticate, Unauthenticated
from broker.security.peer_guard import ALLOCATE_PRODUCER_IDS
from broker.security.principal import KafkaPrincipal
from quorum.checked_calls import CheckedCalls, Context
from quorum.refusals import Refusals, peer_host

BROKERS_ONLY: Final = frozenset({ALLOCATE_PRODUCER_IDS})
"""Methods of services that clients share with brokers."""

NOT_FORWARDED: Final = -1


class ClientGuard(CheckedCalls):
    """Finds out who calls, and says so in the request's context and to ``caller()``."""

    def __init__(self, authenticate: Authenticate, refusals: Refusals) -> None:
        """``authenticate``: of ``grpc_identity``."""
        self._authenticate = authenticate
        self._refusals = refusals

    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        host = peer_host(context.peer())
        if method in BROKERS_ONLY:
            name = method.rpartition("/")[2]
            self._refusals.refused(host, f"{name} is for brokers")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{name} is for brokers")
        try:
            principal = await self._authenticate(context)
        except Unauthenticated as error:
            self._refusals.refused(host, str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        set_caller(Caller(principal, host))
        stamp(request, principal, host)


def stamp(request: Any, principal: KafkaPrincipal, host: str) -> None:  # noqa: ANN401 - any message
    """Put the client's proven identity where requests that are forwarded have their sender's.

    None is an old one that may go over its quota: those are muted, and nobody is over gRPC (Q14).
    """
    descriptor = getattr(request, "DESCRIPTOR", None)
    if descriptor is None or "context" not in descriptor.fields_by_name:
        return
    request.context.principal_name = str(principal)
    request.context.token_authenticated = principal.token_authenticated
    request.context.client_host = host
    request.context.ClearField("api_name")  # The audit trail names the method itself.
    request.context.forwarded_by = NOT_FORWARDED
    request.context.accept_over_quota = False
