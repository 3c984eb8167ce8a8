"""gRPC channels to other brokers, one per broker and address, shared by all users.

One connection carries control requests, forwarded ones and replication: under TLS each channel has
a connection of its own, and each connection costs a handshake.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import grpc.aio

from quorate.broker.rpc.peer_tls import HANDSHAKE_TIMEOUT_S, connection_context, name_of
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.grpc_support.grpc_credentials import channel_credentials
from quorate.common.tls.identity import Role, Security, node_name
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.types import BrokerId, Endpoint
from quorate.metadata_log.image import Broker

log = logging.getLogger(__name__)

GRPC_MESSAGE_BYTES_MAX: Final = 512 << 20
"""The largest message. Replication frames hold at least one whole batch, and batches have a limit
of their own."""

GRPC_REQUEST_BYTES_MAX: Final = 16 << 20
"""The largest request of a client. A request is received before its sender is known."""

GrpcOption = tuple[str, int]

GRPC_OPTIONS: Final[tuple[GrpcOption, ...]] = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_frame_size", 1 << 20),
)
"""The options of channels and servers.

Reconnects are quick, because a restarted broker must be followed again within the lag limit. But a
connection has five seconds for its handshakes (``min_reconnect``): at 1 s, brokers that are half a
second apart never connect, and at 100 ms, connections that a controller opens to many brokers at
once break off and start again. HTTP/2 frames are large, because the default of 16 KiB costs a fifth
of the CPU of a replication stream. ``so_reuseport`` is off, so that a second process on a taken
port fails instead of sharing it.
"""


REPLACED_GRACE_S: Final = 30.0
"""The time that calls may take to end on a channel whose certificate was renewed."""


class Peer(NamedTuple):
    """Another broker, and the address where it serves brokers."""

    broker_id: BrokerId
    endpoint: Endpoint

    @classmethod
    def of(cls, broker: Broker) -> "Peer":
        return cls(broker.broker_id, broker.inter_broker)


class PeerNetwork(Protocol):
    """The network to other brokers, as a process or a simulation has it."""

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        """Return a channel to a broker that the caller closes."""

    async def connect(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> None:
        """Connect ``protocol`` to a port of a broker's host.

        Raises:
            OSError: it cannot be reached, also within ``CONNECT_TIMEOUT_S``, or is not that broker.
            SecurityError: the certificates cannot be used.
        """


CONNECT_TIMEOUT_S: Final = 2.0


async def connect(
    peer: Peer, port: int, protocol: asyncio.BaseProtocol, security: Security | None = None
) -> None:
    """Connect as ``PeerNetwork.connect``. Without ``security`` it is plain text.

    Under TLS only the certificate of that broker is accepted.
    """
    tls: dict[str, Any] = {}
    if security is not None:
        tls = {
            "ssl": connection_context(security),
            "server_hostname": name_of(peer.broker_id),
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
        }
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_S + (HANDSHAKE_TIMEOUT_S if tls else 0)):
        await loop.create_connection(lambda: protocol, peer.endpoint.host, port, **tls)


def open_channel(peer: Peer, security: Security | None = None) -> grpc.aio.Channel:
    """Open a channel that the caller closes. Without ``security`` it is plain text.

    Under TLS only the certificate of that broker is accepted at its address.
    """
    address = str(peer.endpoint)
    if security is None:
        return grpc.aio.insecure_channel(address, options=list(GRPC_OPTIONS))
    only = ("grpc.ssl_target_name_override", node_name(Role.BROKER, peer.broker_id))
    return grpc.aio.secure_channel(
        address, channel_credentials(security), options=[*GRPC_OPTIONS, only]
    )


class PeerChannels:
    """A pool of channels. gRPC multiplexes calls and reconnects by itself, so channels are kept.

    A channel reconnects with the certificate it was opened with. After a renewal the next user gets
    a new channel, and the old one is closed once its calls had time to end.
    """

    def __init__(
        self,
        open_channel: Callable[[Peer, Security | None], grpc.aio.Channel] = open_channel,
        security: RenewableSecurity | None = None,
    ) -> None:
        self._open = open_channel
        self._security = security
        self._used: Security | None = None
        self._channels: dict[Peer, grpc.aio.Channel] = {}
        self._closing = BackgroundTasks()

    def get(self, peer: Peer) -> grpc.aio.Channel:
        """Return the channel to ``peer``.

        It is opened at the first use; users must not close it.
        """
        security = None if self._security is None else self._security.current
        if security is not self._used:
            self._replace()
            self._used = security
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._channels[peer] = self._open(peer, security)
        return channel

    async def close(self) -> None:
        """Close every channel; calls in flight are cancelled."""
        self._closing.cancel()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _replace(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            self._closing.start(channel.close(REPLACED_GRACE_S))
