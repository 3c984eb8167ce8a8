"""Who may call what of a voter's service, by the certificate of the connection.

For every method: one that is added later is closed to brokers until it is named in
``CLIENT_METHODS``.
"""

import grpc

from quorum.checked_calls import CheckedCalls, Context
from quorum.refusals import Refusals, peer_host
from quorum.security import Principal, may_call


class Authorization(CheckedCalls):
    """Refuses calls that the caller's certificate does not allow."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    async def check(self, method: str, _request: object, context: Context) -> None:
        name = method.rpartition("/")[2]
        principal = principal_of(context)
        if may_call(principal, name):
            return
        self._refusals.refused(
            f"{principal} at {peer_host(context.peer())}", f"it may not call {name}"
        )
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate of {principal} does not allow {name}",
        )


def principal_of(context: Context) -> Principal:
    """Whom the certificate of the call's connection names."""
    found = context.auth_context()
    common_names = found.get("x509_common_name", ())
    return Principal(
        frozenset(name.decode(errors="replace") for name in found.get("peer_dns", ())),
        next((name.decode(errors="replace") for name in common_names), ""),
    )
