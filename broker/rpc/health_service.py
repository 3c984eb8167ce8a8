"""The health service of gRPC (grpc.health.v1), for load balancers and probes at the gRPC port.

Its two messages have one field each. ``StringValue`` and ``UInt32Value`` are the same on the wire,
so no generated code is needed, which could collide with that of another package. The methods
receive the name of the service that is asked for: a string, which has no field that a client might
abuse (``client_guard.stamp``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

SERVICE: Final = "grpc.health.v1.Health"
SERVING: Final = 1
NOT_SERVING: Final = 2
SERVICE_UNKNOWN: Final = 3
WATCH_INTERVAL_S: Final = 1.0

WhyUnready = Callable[[], Awaitable[str]]


class HealthService:
    """Answers for the broker as a whole: the service named by the empty string."""

    def __init__(self, why_unready: WhyUnready) -> None:
        """``why_unready`` returns why the broker does not serve now; empty if it does."""
        self._why_unready = why_unready

    async def check(self, service: str, context: Any) -> UInt32Value:  # noqa: ANN401 - as in checked_calls
        """Return whether the broker serves. Any other service is not found, as gRPC demands."""
        if service:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"unknown service {service!r}: ask for the whole broker, by an empty name",
            )
        return UInt32Value(value=await self._status())

    async def watch(self, service: str, context: Any) -> AsyncIterator[UInt32Value]:  # noqa: ANN401 - as above
        """Yield the state now, and each change of it."""
        told = None
        while True:
            now = SERVICE_UNKNOWN if service else await self._status()
            if now != told:
                told = now
                yield UInt32Value(value=now)
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def _status(self) -> int:
        return NOT_SERVING if await self._why_unready() else SERVING


def add_health_to_server(server: grpc.aio.Server, why_unready: WhyUnready) -> None:
    """Serve the health of this broker."""
    service = HealthService(why_unready)
    handlers = {
        "Check": grpc.unary_unary_rpc_method_handler(service.check, _decode, _encode),
        "Watch": grpc.unary_stream_rpc_method_handler(service.watch, _decode, _encode),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
    server.add_generic_rpc_handlers((handler,))


def _decode(message: bytes) -> str:
    return StringValue.FromString(message).value


def _encode(status: UInt32Value) -> bytes:
    return status.SerializeToString()
