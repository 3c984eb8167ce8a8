"""gRPC over the simulated network: the surface of ``grpc.aio`` that brokers use, and its promises.

A channel is one connection at a time. Frames of a connection arrive in order; what a cut holds back
comes late, or the connection breaks and every call on it fails with UNAVAILABLE. A call that is
given up, for its deadline or with its connection, is cancelled at the server, in the middle of
whatever it does. Control requests may also be lost, and come twice, the second time much later.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate.common.types import Endpoint
from tests.sim.cluster.rpc_client import SimulatedChannel
from tests.sim.cluster.rpc_frames import GHOST, HEAD, MESSAGE, OPEN, host_and_door
from tests.sim.cluster.rpc_server import ServerCall, SimulatedServer
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Host


class Mischief(NamedTuple):
    """The chances that a control request is lost, and that it is sent twice."""

    lost: float = 0.0
    doubled: float = 0.0


class Rpc:
    """All connections of one process."""

    def __init__(self, host: "Host[Any]", loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.loop = loop
        self.servers: dict[int, SimulatedServer] = {}
        """The servers of the process by door."""
        self.mischief = Mischief()
        self.on_call: Callable[[int, str, bytes], None] = lambda _to, _method, _body: None
        """A function that is told every call that leaves the process: receiver, method, first
        message."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        self._dialled: dict[int, SimulatedChannel] = {}
        self._accepted: dict[int, dict[int, ServerCall]] = {}

    def open_channel(self, endpoint: Endpoint) -> Any:
        return SimulatedChannel(self, *host_and_door(endpoint))

    def new_server(self, door: int) -> Any:
        server = self.servers[door] = SimulatedServer()
        return server

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
        call_id, kind, length = HEAD.unpack_from(frame)
        if kind in (OPEN, GHOST):
            door = frame[HEAD.size]
            method = frame[HEAD.size + 1 : HEAD.size + length].decode()
            body = frame[HEAD.size + length :]
            call = ServerCall(self, link, call_id, door, method, body, answers=kind == OPEN)
            calls[call_id] = call
            call.start(partial(calls.pop, call_id, None))
        elif (found := calls.get(call_id)) is not None:
            found.arrived(kind, frame[HEAD.size :])
