"""gRPC channels to other brokers, one per broker and address, shared by all users.

One connection carries control requests, forwarded ones and replication: under TLS each channel has
a connection of its own, and each connection costs a handshake.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import grpc.aio

from broker.background_tasks import BackgroundTasks
from broker.grpc_options import GRPC_OPTIONS
from metadata_log.image import Broker
from metadata_log.types import BrokerId, Endpoint
from quorum.peers import channel_credentials
from quorum.renewable import RenewableSecurity
from quorum.security import Role, Security, node_name

log = logging.getLogger(__name__)

REPLACED_GRACE_S: Final = 30.0
"""How long calls may go on over a channel whose certificate was renewed."""


class Peer(NamedTuple):
    """Another broker, and where it serves brokers."""

    broker_id: BrokerId
    endpoint: Endpoint

    @classmethod
    def of(cls, broker: Broker) -> "Peer":
        return cls(broker.broker_id, broker.inter_broker)


def open_channel(peer: Peer, security: Security | None = None) -> grpc.aio.Channel:
    """A channel of the caller's own; ``security`` None: plain text.

    Under TLS nobody is believed but that very broker, whatever answers at its address.
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

    A channel reconnects with the certificate it was opened with, so when that has been renewed the
    next user gets a new channel, and the old one is closed once its calls had time to end.
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
        """The channel to ``peer``; opened at the first use, and not the user's to close."""
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
