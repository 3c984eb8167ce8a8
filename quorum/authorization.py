"""Who may call what of a voter's service, by the certificate of the connection.

Before any of the service's own code runs, and for every method: one that is added later is closed
to brokers until it is named in ``CLIENT_METHODS``.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from quorum.refusals import Refusals, peer_host
from quorum.security import Principal, may_call

Context = Any
"""``grpc.aio.ServicerContext``."""
Behaviour = Callable[[Any, Context], Any]


class Authorization(grpc.aio.ServerInterceptor):
    """Refuses calls that the caller's certificate does not allow."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - generic in grpc
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # No such method: grpc says so.
        method = handler_call_details.method.rpartition("/")[2]
        kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        kind = next(kind for kind in kinds if getattr(handler, kind) is not None)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(method, getattr(handler, kind)),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _guarded(self, method: str, behaviour: Behaviour) -> Behaviour:
        """The behaviour behind the check, of the same kind: grpc looks whether it generates."""
        if inspect.isasyncgenfunction(behaviour):

            async def generating(request: object, context: Context) -> AsyncIterator[Any]:
                await self._check(method, context)
                async for answer in behaviour(request, context):
                    yield answer

            return generating

        async def answering(request: object, context: Context) -> object:
            await self._check(method, context)
            return await behaviour(request, context)

        return answering

    async def _check(self, method: str, context: Context) -> None:
        principal = principal_of(context)
        if may_call(principal, method):
            return
        self._refusals.refused(
            f"{principal} at {peer_host(context.peer())}", f"it may not call {method}"
        )
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate of {principal} does not allow {method}",
        )


def principal_of(context: Context) -> Principal:
    """Whom the certificate of the call's connection names."""
    found = context.auth_context()
    common_names = found.get("x509_common_name", ())
    return Principal(
        frozenset(name.decode(errors="replace") for name in found.get("peer_dns", ())),
        next((name.decode(errors="replace") for name in common_names), ""),
    )
