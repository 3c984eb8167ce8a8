"""Channels to the other voters: a voter passes on what only the leader can answer, once."""

import resource
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, Final

import grpc

from metadata_log.records import QuorumVoter
from quorate_proto.v1.quorum_pb2_grpc import QuorumStub
from quorum.renewable import SecuritySource, current
from quorum.security import Role, Security, role_name

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

MAX_CONNECTIONS: Final = 1_000
"""That a voter's gRPC port holds, strangers included: each costs memory and a file."""

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
"""Whatever the address: who answers must have a voter's certificate."""


def open_channel(address: str, security: Security | None = None) -> grpc.aio.Channel:
    """A channel to a voter's gRPC port; ``security`` None: plain text."""
    if security is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(
        address, channel_credentials(security), options=(*CHANNEL_OPTIONS, *ONLY_VOTERS)
    )


def channel_credentials(security: Security) -> grpc.ChannelCredentials:
    """With what a client of the quorum proves itself."""
    return grpc.ssl_channel_credentials(
        root_certificates=security.authority,
        private_key=security.private_key,
        certificate_chain=security.chain,
    )


def bind_server(server: grpc.aio.Server, address: str, security: SecuritySource | None) -> int:
    """Let the server listen; under TLS nobody connects without a certificate of the authority.

    Returns the port.

    Raises:
        RuntimeError: the port is taken, or the address is not this machine's.
    """
    if security is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, server_credentials(security, require_client=True))


def server_credentials(security: SecuritySource, *, require_client: bool) -> grpc.ServerCredentials:
    """Of a server whose certificate may be renewed: each handshake is made with the newest.

    ``require_client``: nobody gets in without a certificate of the authority.
    """
    used = current(security)
    assert used is not None

    def renewed() -> Any:  # noqa: ANN401 - typed nowhere in grpc
        nonlocal used
        newest = current(security)
        if newest is used or newest is None:
            return None
        used = newest
        return _configuration(newest, require_client=require_client)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used, require_client=require_client),
        renewed,
        require_client_authentication=require_client,
    )


def _configuration(security: Security, *, require_client: bool) -> Any:  # noqa: ANN401 - as above
    return grpc.ssl_server_certificate_configuration(
        [(security.private_key, security.chain)],
        root_certificates=security.authority if require_client else None,
    )


def allow_many_files(wanted: int = 4 * MAX_CONNECTIONS) -> None:
    """Connections of strangers must not use up the files that journal and snapshot need.

    As many as the system allows, if that is fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def stub_of(channel: grpc.aio.Channel) -> "QuorumAsyncStub":
    """The stub, with the types of its asynchronous form."""
    return QuorumStub(channel)


class VoterChannels:
    """One channel per address of a voter; it reconnects by itself.

    With the certificate that it was opened with: once there is a newer one, the next user gets
    another channel. Streams that are there stay on theirs, as sessions hang on them.
    """

    def __init__(self, security: SecuritySource | None) -> None:
        self._security = security
        self._used: Security | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._replaced: list[grpc.aio.Channel] = []

    def get(self, address: str) -> grpc.aio.Channel:
        """The channel to ``address``; opened at the first use."""
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
        """The channels to others, which are the caller's to close now."""
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
        """To call that voter; None if it is not known where it is."""
        for member in self._members():
            if member.voter_id == voter_id:
                return stub_of(self._channels.get(str(member.grpc)))
        return None

    async def close(self) -> None:
        await self._channels.close()
