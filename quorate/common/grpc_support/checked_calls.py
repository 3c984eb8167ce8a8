"""An interceptor that checks every call of a gRPC server, whatever services it has.

The check runs before any code of a service, and for every method, those added later included.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from typing import Any, NamedTuple

import grpc

from quorate.common.tls.identity import Principal

Context = Any
"""``grpc.aio.ServicerContext``. The type that the stubs name mixes in the synchronous context."""
Behaviour = Callable[[Any, Context], Any]


class _Checked(NamedTuple):
    """A method's handler, and the same handler behind the check."""

    handler: Any
    guarded: Any


class CheckedCalls(grpc.aio.ServerInterceptor):
    """Calls ``check`` before each call of the server."""

    @cached_property
    def _known(self) -> dict[str, _Checked]:
        """Handlers by method: each is put behind the check once."""
        return {}

    @abstractmethod
    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        """Return if the call may go on, else abort it.

        ``method`` is a full name: ``/quorate.v1.Admin/CreateTopics``. ``request`` is the message,
        which may be changed; for a stream of requests it is the iterator.
        """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - generic in grpc
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # grpc itself answers that there is no such method.
        method = handler_call_details.method
        known = self._known.get(method)
        if known is None or known.handler is not handler:
            known = self._known[method] = _Checked(handler, self._behind_check(method, handler))
        return known.guarded

    def _behind_check(self, method: str, handler: Any) -> Any:  # noqa: ANN401 - generic in grpc
        kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        kind = next(kind for kind in kinds if getattr(handler, kind) is not None)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(method, getattr(handler, kind)),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _guarded(self, method: str, behaviour: Behaviour) -> Behaviour:
        """Return the behaviour behind the check. It is of the same kind, because grpc looks whether
        it is a generator.
        """
        if inspect.isasyncgenfunction(behaviour):

            async def generating(request: object, context: Context) -> AsyncIterator[Any]:
                await self.check(method, request, context)
                async for answer in behaviour(request, context):
                    yield answer

            return generating

        async def answering(request: object, context: Context) -> object:
            await self.check(method, request, context)
            return await behaviour(request, context)

        return answering


def principal_of(context: Context) -> Principal:
    """Return the principal in the certificate of the call's connection."""
    found = context.auth_context()
    common_names = found.get("x509_common_name", ())
    return Principal(
        frozenset(name.decode(errors="replace") for name in found.get("peer_dns", ())),
        next((name.decode(errors="replace") for name in common_names), ""),
    )
