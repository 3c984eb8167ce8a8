"""A follower at the other end of a ``LeaderStream``: a transport without a socket."""

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

from quorate.broker.replication.services.leader_stream import LeaderStream
from quorate.broker.replication.streams.fetch_messages import FetchedPartition
from quorate.broker.replication.streams.frame_reader import FrameReader
from quorate.broker.replication.streams.packed_codec import (
    REFUSAL,
    VERSION,
    Hello,
    decode_response,
    encode_hello,
    open_frame,
)
from quorate.common.types import BrokerId


class FollowerTransport:
    """What the leader writes is decoded; what the follower sends is delivered at once."""

    def __init__(self, protocol: LeaderStream) -> None:
        self.responses: list[list[FetchedPartition]] = []
        self.refusals: list[str] = []
        self.is_closed = False
        self.on_response: Callable[[list[FetchedPartition]], None] = self.responses.append
        self._protocol = protocol
        self._frames = FrameReader(1 << 30)
        protocol.connection_made(cast("asyncio.Transport", self))

    # -- the follower ----------------------------------------------------------------------------

    def say_hello(self, *, follower: int, leader: int, version: int = VERSION) -> None:
        self.deliver(encode_hello(Hello(version, BrokerId(follower), BrokerId(leader))))

    def deliver(self, data: bytes) -> None:
        room = self._protocol.get_buffer(-1)
        room[: len(data)] = data
        self._protocol.buffer_updated(len(data))

    # -- the transport ---------------------------------------------------------------------------

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 4_000) if name == "peername" else None

    def write(self, data: bytes | memoryview) -> None:
        assert not self.is_closed
        room = self._frames.buffer()
        room[: len(data)] = data
        for frame in self._frames.received(len(data)):
            kind, header, records = open_frame(frame)
            if kind == REFUSAL:
                self.refusals.append(bytes(header).decode())
            else:
                self.on_response(decode_response(header, records))

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._protocol.connection_lost(None)

    def abort(self) -> None:
        self.close()
