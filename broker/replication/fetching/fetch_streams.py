"""The follower's end of a stream to a leader: framed over a connection of its own, or over gRPC.

Both carry the frames of a ``FetchSessionHandler``, which does not know which of them it is.
"""

import asyncio
import logging
from typing import Final, Protocol, cast

import grpc.aio

from quorate.broker.log.directories.log_room import LogRoom
from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.streams import protobuf_codec
from quorate.broker.replication.streams.frame_reader import FrameReader
from quorate.broker.replication.streams.packed_codec import (
    REFUSAL,
    RESPONSE,
    Hello,
    decode_response,
    encode_hello,
    encode_request,
    open_frame,
)
from quorate.broker.replication.wakeup import Wakeup
from quorate.broker.rpc.peer_channels import GRPC_MESSAGE_BYTES_MAX
from quorate.common.background_tasks import BackgroundTasks

log = logging.getLogger(__name__)

FETCH_METHOD: Final = "/quorate.v1.Replication/Fetch"

FetchCall = grpc.aio.StreamStreamCall[bytes, bytes]


class StreamRefused(Exception):
    """The leader does not serve this stream."""


class FetchStream(Protocol):
    """A stream that is open."""

    @property
    def ended(self) -> "asyncio.Future[None]":
        """Done once the stream has ended, with the reason as exception if it failed."""

    def wake(self) -> None:
        """Send what is new, soon."""

    async def close(self) -> None:
        """End the stream."""


class FramedFetchStream(asyncio.BufferedProtocol):
    """The protocol of a connection to the leader's replication port.

    Nothing here is a task but the rare wait for the disk: a response is appended as it arrives, and
    requests leave once per turn of the event loop.
    """

    def __init__(self, session: FetchSessionHandler, room: LogRoom, hello: Hello) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._room = room
        self._hello = hello
        self._frames = FrameReader(GRPC_MESSAGE_BYTES_MAX)
        self._is_sending = False
        self._is_paused = False
        self._waiting = BackgroundTasks()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.ended.done():
            self._transport.abort()  # It took so long that somebody else carries the session now.
            return
        self._transport.write(encode_hello(self._hello))
        self.wake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended.done():
            return
        try:
            for frame in self._frames.received(nbytes):
                kind, header, records = open_frame(frame)
                if kind == RESPONSE:
                    self._session.on_response(decode_response(header, records))
                    self._ask_for_more(len(frame))
                elif kind == REFUSAL:
                    raise StreamRefused(bytes(header).decode(errors="replace"))
                else:
                    raise MalformedFrame(f"a leader sends no frame of kind {kind}")
        except Exception as error:  # noqa: BLE001 - the fetcher tells what has failed, and goes on
            self._end(error)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def wake(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._send)

    async def close(self) -> None:
        self._end(None)
        await self._waiting.ended()

    def _send(self) -> None:
        self._is_sending = False
        if self._is_paused or self._transport is None or self.ended.done():
            return
        request = self._session.next_request()
        if request is not None:
            self._transport.write(encode_request(request))

    def _ask_for_more(self, received_bytes: int) -> None:
        if self._room.has_room:
            self._session.ask_for_more(received_bytes)
        else:
            self._waiting.start(self._ask_when_there_is_room(received_bytes))

    async def _ask_when_there_is_room(self, received_bytes: int) -> None:
        try:
            await self._room.wait_for_room()
        except Exception as error:  # noqa: BLE001 - as above
            self._end(error)
        else:
            if not self.ended.done():
                self._session.ask_for_more(received_bytes)

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        self._waiting.cancel()
        if self._transport is not None:
            self._transport.abort()
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


class GrpcFetchStream:
    """A call of ``Replication.Fetch``: for leaders of older releases, and where nothing but the
    port of gRPC can be reached."""

    def __init__(self, session: FetchSessionHandler, room: LogRoom, call: FetchCall) -> None:
        self._session = session
        self._room = room
        self._call = call
        self._wakeup = Wakeup()
        self._wakeup.wake()
        self.ended: asyncio.Future[None] = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        self._wakeup.wake()

    async def close(self) -> None:
        self.ended.cancel()
        await asyncio.gather(self.ended, return_exceptions=True)
        self._call.cancel()

    async def _run(self) -> None:
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            next(task for task in tasks if task in done).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._wakeup.wait()
            request = self._session.next_request()
            if request is not None:
                await self._call.write(protobuf_codec.encode_request(request))

    async def _read(self) -> None:
        while True:
            frame = await self._call.read()
            if not isinstance(frame, bytes):
                return
            self._session.on_response(protobuf_codec.decode_response(frame))
            await self._room.wait_for_room()
            self._session.ask_for_more(len(frame))
