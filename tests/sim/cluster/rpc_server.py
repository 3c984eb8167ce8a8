"""The serving side of simulated gRPC: handlers, and the context they are given."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from tests.sim.cluster.rpc_frames import HEAD, MESSAGE, REQUEST, STATUS
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.cluster.rpc import Rpc


class Aborted(Exception):
    """A handler ended its call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _Details(NamedTuple):
    method: str
    invocation_metadata: tuple[object, ...] = ()


class SimulatedServer:
    """The surface of ``grpc.aio.Server``."""

    def __init__(self) -> None:
        self.is_started = False
        self._generic: list[Any] = []
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        self._generic.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """The generic handlers say the same."""

    def add_insecure_port(self, address: str) -> int:
        return int(address.rpartition(":")[2])

    async def start(self) -> None:
        self.is_started = True

    async def stop(self, grace: float | None) -> None:
        self.is_started = False

    def handler(self, method: str) -> Any:
        found = self._handlers.get(method)
        if found is None:
            for generic in self._generic:
                found = generic.service(_Details(method))
                if found is not None:
                    self._handlers[method] = found
                    break
        return found


class ServerCall:
    """One call at its server; the context of its handler."""

    def __init__(
        self,
        rpc: "Rpc",
        link: Link,
        number: int,
        door: int,
        method: str,
        body: bytes,
        *,
        answers: bool,
    ) -> None:
        self._rpc = rpc
        self._door = door
        self._link = link
        self._number = number
        self._method = method
        self._body = body
        self._answers = answers
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[], object]) -> None:
        server = self._rpc.servers.get(self._door)
        handler = None if server is None or not server.is_started else server.handler(self._method)
        if handler is None:
            self._send(STATUS, grpc.StatusCode.UNIMPLEMENTED, self._method.encode())
            ended()
            return
        task = self._task = self._rpc.loop.create_task(self._run(handler))
        self._rpc.tasks[task] = None
        task.add_done_callback(self._rpc.tasks.pop)
        task.add_done_callback(lambda _: ended())

    def arrived(self, kind: int, body: bytes) -> None:
        if kind == REQUEST:
            self._requests.put_nowait(body)
        else:
            self.cancel()

    def cancel(self) -> None:
        """The caller gave up, or is gone."""
        if self._task is not None and self._answers:
            self._task.cancel()

    async def _run(self, handler: Any) -> None:
        try:
            if handler.stream_stream is not None:
                await handler.stream_stream(self._iterator(), self)
                self._send(STATUS, grpc.StatusCode.OK)
                return
            deserialize, serialize = handler.request_deserializer, handler.response_serializer
            request = self._body if deserialize is None else deserialize(self._body)
            response = await handler.unary_unary(request, self)
            self._send(
                MESSAGE, grpc.StatusCode.OK, response if serialize is None else serialize(response)
            )
        except Aborted as aborted:
            self._send(STATUS, aborted.code, aborted.details.encode())

    async def _iterator(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._requests.get()

    def _send(self, kind: int, code: grpc.StatusCode, body: bytes = b"") -> None:
        if self._answers:
            number = int(code.value[0])
            self._rpc.send(self._link, HEAD.pack(self._number, kind, number) + body)

    # -- the context -----------------------------------------------------------------------------

    async def write(self, frame: bytes) -> None:
        self._send(MESSAGE, grpc.StatusCode.OK, frame)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise Aborted(code, details)

    def peer(self) -> str:
        return f"host {self._link.dialler}"

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return nothing, because no client shows who it is."""
        return {}
