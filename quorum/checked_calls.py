"""A check before every call of a gRPC server, whatever services it has.

Before any of a service's own code runs, and for every method, those added later included.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

Context = Any
"""``grpc.aio.ServicerContext``."""
Behaviour = Callable[[Any, Context], Any]


class CheckedCalls(grpc.aio.ServerInterceptor):
    """Asks ``check`` before each call."""

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
        kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        kind = next(kind for kind in kinds if getattr(handler, kind) is not None)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(handler_call_details.method, getattr(handler, kind)),
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
