"""The calling side of simulated gRPC: channels and calls."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from tests.sim.cluster.rpc_frames import (
    CANCEL,
    CODES,
    GHOST,
    HEAD,
    MESSAGE,
    OPEN,
    REQUEST,
    failure,
)
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.cluster.rpc import Rpc


class SimulatedChannel:
    """The surface of ``grpc.aio.Channel``."""

    def __init__(self, rpc: "Rpc", to: int, door: int) -> None:
        self.rpc = rpc
        self.to = to
        self._door = door
        self._link: Link | None = None
        self._calls: dict[int, ClientCall] = {}
        self._numbered = 0

    async def __aenter__(self) -> "SimulatedChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self.rpc.hung_up(link)
            self.rpc.serve(link, None)
            self.rpc.host.network.close(link, self.rpc.host.voter_id)
        self._fail_all(grpc.StatusCode.CANCELLED, "the channel was closed")

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        **_: object,
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(request: Any, timeout: float | None = None) -> Any:
            body = request if request_serializer is None else request_serializer(request)
            answer = await self._unary(method, body, timeout)
            return answer if response_deserializer is None else response_deserializer(answer)

        return call

    def stream_stream(self, method: str, **_: object) -> Callable[[], "StreamCall"]:
        def call() -> StreamCall:
            opened = StreamCall(self)
            self.open(opened, method, b"")
            return opened

        return call

    async def _unary(self, method: str, body: bytes, timeout: float | None) -> bytes:
        call = UnaryCall(self)
        lost, doubled = self.rpc.mischief if "BrokerControl" in method else (0.0, 0.0)
        world = self.rpc.host.world
        self.open(call, method, body, is_lost=lost > 0 and world.chance(lost))
        if doubled > 0 and world.chance(doubled):
            self._double(method, body)
        timer = None
        if timeout is not None:
            timer = self.rpc.loop.call_later(timeout, call.too_late)
        try:
            return await call.answer
        finally:
            if timer is not None:
                timer.cancel()
            if self._calls.pop(call.number, None) is not None:
                self.send(call, CANCEL)

    def open(self, call: "ClientCall", method: str, body: bytes, *, is_lost: bool = False) -> None:
        """Begin a call; it fails later where there is no connection."""
        self.rpc.on_call(self.to, method, body)
        self._calls[call.number] = call
        if self._link is None:
            self._dial()
        if self._link is not None and not is_lost:
            self._send_open(call.number, OPEN, method, body)

    def send(self, call: "ClientCall", kind: int, body: bytes = b"") -> None:
        if self._link is not None:
            self.rpc.send(self._link, HEAD.pack(call.number, kind, 0) + body)

    def next_number(self) -> int:
        self._numbered += 1
        return self._numbered

    def forget(self, call: "ClientCall") -> None:
        self._calls.pop(call.number, None)

    def arrived(self, frame: bytes | None) -> None:
        if frame is None:
            if self._link is not None:
                self.rpc.hung_up(self._link)
            self._link = None
            self._fail_all(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            return
        call_id, kind, code = HEAD.unpack_from(frame)
        call = self._calls.get(call_id)
        if call is not None:
            call.arrived(kind, CODES.get(code), frame[HEAD.size :])

    def _dial(self) -> None:
        host = self.rpc.host
        process = host.process

        def failed() -> None:
            host.deliver(
                process,
                partial(self._fail_all, grpc.StatusCode.UNAVAILABLE, "connection refused"),
            )

        self._link = host.network.dial(host.voter_id, self.to, failed)
        if self._link is not None:
            self.rpc.dialled(self._link, self)

    def _send_open(self, number: int, kind: int, method: str, body: bytes) -> None:
        if self._link is not None:
            name = bytes([self._door]) + method.encode()
            self.rpc.send(self._link, HEAD.pack(number, kind, len(name)) + name + body)

    def _double(self, method: str, body: bytes) -> None:
        host, number = self.rpc.host, self.next_number()
        process = host.process
        later_s = host.world.random.choice([0.0, 0.05, 1.0, 5.0]) * host.world.random.random()

        def again() -> None:
            if process is host.process:
                host.note(f"{method} to {self.to} comes again")
                if self._link is None:
                    self._dial()
                self._send_open(number, GHOST, method, body)

        host.world.after(later_s, again)

    def _fail_all(self, code: grpc.StatusCode, details: str) -> None:
        if code is grpc.StatusCode.UNAVAILABLE and self._link is not None and details[0] == "c":
            return
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.failed(failure(code, details))


class ClientCall:
    """A call under way."""

    def __init__(self, channel: SimulatedChannel) -> None:
        self.channel = channel
        self.number = channel.next_number()

    def arrived(self, kind: int, code: grpc.StatusCode | None, body: bytes) -> None:
        raise NotImplementedError

    def failed(self, error: grpc.aio.AioRpcError) -> None:
        raise NotImplementedError


class UnaryCall(ClientCall):
    def __init__(self, channel: SimulatedChannel) -> None:
        super().__init__(channel)
        self.answer: asyncio.Future[bytes] = channel.rpc.loop.create_future()

    def arrived(self, kind: int, code: grpc.StatusCode | None, body: bytes) -> None:
        self.channel.forget(self)
        if self.answer.done():
            return
        if kind == MESSAGE:
            self.answer.set_result(body)
        else:
            self.answer.set_exception(
                failure(code or grpc.StatusCode.UNKNOWN, body.decode(errors="replace"))
            )

    def too_late(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(
                failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            )

    def failed(self, error: grpc.aio.AioRpcError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class StreamCall(ClientCall):
    """The surface of ``grpc.aio.StreamStreamCall`` for raw frames."""

    def __init__(self, channel: SimulatedChannel) -> None:
        super().__init__(channel)
        self._frames: asyncio.Queue[Any] = asyncio.Queue()
        self._error: grpc.aio.AioRpcError | None = None

    async def write(self, frame: bytes) -> None:
        if self._error is not None:
            raise self._error
        self.channel.send(self, REQUEST, frame)

    async def read(self) -> Any:
        frame = await self._frames.get()
        if isinstance(frame, grpc.aio.AioRpcError):
            raise frame
        return frame

    def cancel(self) -> None:
        if self._error is None:
            self.channel.send(self, CANCEL)
            self.channel.forget(self)

    def arrived(self, kind: int, code: grpc.StatusCode | None, body: bytes) -> None:
        if kind == MESSAGE:
            self._frames.put_nowait(body)
            return
        self.channel.forget(self)
        if code is grpc.StatusCode.OK:
            self._frames.put_nowait(grpc.aio.EOF)
        else:
            self.failed(failure(code or grpc.StatusCode.UNKNOWN, body.decode(errors="replace")))

    def failed(self, error: grpc.aio.AioRpcError) -> None:
        if self._error is None:
            self._error = error
            self._frames.put_nowait(error)
