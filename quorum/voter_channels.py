"""Channels to the other voters. A voter forwards once what only the leader can answer."""

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Final

import grpc

from quorate.common.grpc_support.grpc_credentials import channel_credentials, server_credentials
from quorate.common.tls.identity import Role, Security, role_name
from quorate.common.tls.renewable import SecuritySource, current
from quorate.metadata_log.records import QuorumVoter
from quorate_proto.v1.quorum_pb2_grpc import QuorumStub

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
"""The options of every channel to a voter. grpc's own back-off, up to two minutes, outlasts any
failover.
"""

MAX_CONNECTIONS: Final = 4_000
"""The most connections that a voter's gRPC port holds, strangers included: each costs memory and a
file. Each of 1,000 brokers has one to every voter, or two while its certificate is renewed.
"""

HANDSHAKE_TIMEOUT_MS: Final = 3_000

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
)

ONLY_VOTERS: Final = (("grpc.ssl_target_name_override", role_name(Role.VOTER)),)
"""The server must have a voter's certificate, whatever its address is."""


def open_channel(address: str, security: Security | None = None) -> grpc.aio.Channel:
    """Open a channel to a voter's gRPC port. If ``security`` is None it is plain text."""
    if security is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(
        address, channel_credentials(security), options=(*CHANNEL_OPTIONS, *ONLY_VOTERS)
    )


def bind_server(server: grpc.aio.Server, address: str, security: SecuritySource | None) -> int:
    """Let the server listen; return the port. Under TLS nobody connects without a certificate of
    the authority.

    Raises:
        RuntimeError: the port is taken, or the address is not this machine's.
    """
    if security is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, server_credentials(security, require_client=True))


def stub_of(channel: grpc.aio.Channel) -> "QuorumAsyncStub":
    """Return the stub with the types of its asynchronous form."""
    return QuorumStub(channel)


class VoterChannels:
    """One channel per address of a voter; it reconnects by itself.

    A channel keeps the certificate with which it was opened. Once there is a newer one, the next
    user gets another channel. Open streams stay on theirs, as sessions hang on them.
    """

    def __init__(self, security: SecuritySource | None) -> None:
        self._security = security
        self._used: Security | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._replaced: list[grpc.aio.Channel] = []

    def get(self, address: str) -> grpc.aio.Channel:
        """Return the channel to ``address``, opened at the first use."""
        security = current(self._security)
        if security is not self._used:
            self._replaced += self._channels.values()
            self._channels.clear()
            self._used = security
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, security)
        return channel

    def take_all_but(self, addresses: Set[str]) -> list[grpc.aio.Channel]:
        """Remove and return the channels to other addresses, which the caller closes."""
        others = self._channels.keys() - addresses
        return [self._channels.pop(address) for address in others]

    async def close(self) -> None:
        channels = [*self._channels.values(), *self._replaced]
        self._channels.clear()
        self._replaced.clear()
        for channel in channels:
            await channel.close()


class Peers:
    """One channel per address of another voter, opened when it is first needed."""

    def __init__(
        self, members: Callable[[], Iterable[QuorumVoter]], security: SecuritySource | None = None
    ) -> None:
        self._members = members
        self._channels = VoterChannels(security)

    def stub(self, voter_id: int) -> "QuorumAsyncStub | None":
        """Return the stub of that voter, or None if its address is not known."""
        for member in self._members():
            if member.voter_id == voter_id:
                return stub_of(self._channels.get(str(member.grpc)))
        return None

    async def close(self) -> None:
        await self._channels.close()
