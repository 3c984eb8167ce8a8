"""gRPC over the simulated network: the surface of ``grpc.aio`` that brokers use, and its promises.

A channel is one connection at a time. Frames of a connection arrive in order; what a cut holds back
comes late, or the connection breaks and every call on it fails with UNAVAILABLE. A call that is
given up, for its deadline or with its connection, is cancelled at the server, in the middle of
whatever it does. Control requests may also be lost, and come twice, the second time much later.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
import grpc.aio

from metadata_log.types import Endpoint
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Host

PORT_BASE: Final = 9_000

_HEAD: Final = struct.Struct(">IBB")
"""Call id, kind of frame, length of the method's name or status code."""

OPEN, GHOST, REQUEST, CANCEL, MESSAGE, STATUS = range(6)
"""The last two go to the caller. GHOST opens a call whose answer nobody waits for."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class Mischief(NamedTuple):
    """What is done to control requests."""

    lost: float = 0.0
    doubled: float = 0.0


def endpoint_of(host_id: int) -> Endpoint:
    """Where a broker listens, in all of its incarnations."""
    return Endpoint(f"host{host_id}", PORT_BASE + host_id)


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


class Rpc:
    """All connections of one process."""

    def __init__(self, host: "Host[Any]", loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.loop = loop
        self.server: SimulatedServer | None = None
        self.mischief = Mischief()
        self.on_call: Callable[[int, str, bytes], None] = lambda _to, _method, _body: None
        """Told every call that leaves the process: receiver, method, first message."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        self._dialled: dict[int, SimulatedChannel] = {}
        self._accepted: dict[int, dict[int, ServerCall]] = {}

    def open_channel(self, endpoint: Endpoint) -> Any:
        return SimulatedChannel(self, endpoint.port - PORT_BASE)

    def new_server(self) -> Any:
        self.server = SimulatedServer()
        return self.server

    def dialled(self, link: Link, channel: "SimulatedChannel") -> None:
        self._dialled[link.number] = channel

    def hung_up(self, link: Link) -> None:
        self._dialled.pop(link.number, None)

    def send(self, link: Link, frame: bytes) -> None:
        process = self.host.process
        if process is not None and process.rpc is self and self.host.has_effect():
            self.host.network.send(link, self.host.voter_id, frame)

    def arrived(self, link: Link, frame: bytes | None) -> None:
        if frame is None or frame[4] >= MESSAGE:
            channel = self._dialled.get(link.number)
            if channel is not None:
                channel.arrived(frame)
        if frame is None or frame[4] < MESSAGE:
            self.serve(link, frame)

    def serve(self, link: Link, frame: bytes | None) -> None:
        """A frame for this side's server; None: the connection is gone."""
        if frame is None:
            for call in list(self._accepted.pop(link.number, {}).values()):
                call.cancel()
            return
        calls = self._accepted.setdefault(link.number, {})
        call_id, kind, length = _HEAD.unpack_from(frame)
        if kind in (OPEN, GHOST):
            method = frame[_HEAD.size : _HEAD.size + length].decode()
            body = frame[_HEAD.size + length :]
            call = ServerCall(self, link, call_id, method, body, answers=kind == OPEN)
            calls[call_id] = call
            call.start(partial(calls.pop, call_id, None))
        elif (found := calls.get(call_id)) is not None:
            found.arrived(kind, frame[_HEAD.size :])


# -- the calling side ----------------------------------------------------------------------------


class SimulatedChannel:
    """The surface of ``grpc.aio.Channel``."""

    def __init__(self, rpc: Rpc, to: int) -> None:
        self.rpc = rpc
        self.to = to
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
        mischief = self.rpc.mischief if "BrokerControl" in method else Mischief()
        world = self.rpc.host.world
        is_lost = mischief.lost and world.chance(mischief.lost)
        self.open(call, method, body, is_lost=bool(is_lost))
        if mischief.doubled and world.chance(mischief.doubled):
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
            self.rpc.send(self._link, _HEAD.pack(call.number, kind, 0) + body)

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
        call_id, kind, code = _HEAD.unpack_from(frame)
        call = self._calls.get(call_id)
        if call is not None:
            call.arrived(kind, _CODES.get(code), frame[_HEAD.size :])

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
            name = method.encode()
            self.rpc.send(self._link, _HEAD.pack(number, kind, len(name)) + name + body)

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


# -- the serving side ----------------------------------------------------------------------------


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
        self, rpc: Rpc, link: Link, number: int, method: str, body: bytes, *, answers: bool
    ) -> None:
        self._rpc = rpc
        self._link = link
        self._number = number
        self._method = method
        self._body = body
        self._answers = answers
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[], object]) -> None:
        server = self._rpc.server
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
            self._rpc.send(self._link, _HEAD.pack(self._number, kind, number) + body)

    # -- the context -----------------------------------------------------------------------------

    async def write(self, frame: bytes) -> None:
        self._send(MESSAGE, grpc.StatusCode.OK, frame)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise Aborted(code, details)

    def peer(self) -> str:
        return f"host {self._link.dialler}"
