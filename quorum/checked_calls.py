"""A check before every call of a gRPC server, whatever services it has.

Before any of a service's own code runs, and for every method, those added later included.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from typing import Any, NamedTuple

import grpc

Context = Any
"""``grpc.aio.ServicerContext``."""
Behaviour = Callable[[Any, Context], Any]


class _Checked(NamedTuple):
    """A method's handler, and the same behind the check."""

    handler: Any
    guarded: Any


class CheckedCalls(grpc.aio.ServerInterceptor):
    """Asks ``check`` before each call."""

    @cached_property
    def _known(self) -> dict[str, _Checked]:
        """By method: what is called often is put behind the check once."""
        return {}

    @abstractmethod
    async def check(self, method: str, request: Any, context: Context) -> None:  # noqa: ANN401 - any message
        """Return if the call may go on, else abort it.

        ``method``: ``/quorate.v1.Admin/CreateTopics``. ``request``: the message, which may be
        changed; of a stream of requests, the iterator.
        """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - generic in grpc
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # No such method: grpc says so.
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
        """The behaviour behind the check, of the same kind: grpc looks whether it generates."""
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
