"""Channels to the other voters: a voter passes on what only the leader can answer, once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import grpc

from metadata_log.types import VoterId
from quorate_proto.v1.quorum_pb2_grpc import QuorumStub
from quorum.config import Voter

if TYPE_CHECKING:  # A name of the type stubs alone.
    from quorate_proto.v1.quorum_pb2_grpc import QuorumAsyncStub

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.enable_http_proxy", 0),
)
"""Of everybody who calls a voter. grpc's own back-off, up to two minutes, outlasts any failover."""

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to a voter's gRPC port."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def stub_of(channel: grpc.aio.Channel) -> "QuorumAsyncStub":
    """The stub, with the types of its asynchronous form."""
    return QuorumStub(channel)


class Peers:
    """One channel per other voter, opened when it is first needed."""

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._addresses = {voter.voter_id: str(voter.grpc) for voter in voters}
        self._channels: dict[int, grpc.aio.Channel] = {}

    def stub(self, voter_id: int) -> "QuorumAsyncStub":
        channel = self._channels.get(voter_id)
        if channel is None:
            channel = open_channel(self._addresses[VoterId(voter_id)])
            self._channels[voter_id] = channel
        return stub_of(channel)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
