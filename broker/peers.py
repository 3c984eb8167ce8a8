"""gRPC channels to other processes of the cluster, one per endpoint, shared by all users."""

from collections.abc import Callable

import grpc.aio

from broker.grpc_options import GRPC_OPTIONS
from metadata_log.types import Endpoint


def open_channel(endpoint: Endpoint) -> grpc.aio.Channel:
    """A channel of the caller's own."""
    return grpc.aio.insecure_channel(str(endpoint), options=list(GRPC_OPTIONS))


class PeerChannels:
    """A pool of channels. gRPC multiplexes calls and reconnects by itself, so channels are kept."""

    def __init__(self, open_channel: Callable[[Endpoint], grpc.aio.Channel] = open_channel) -> None:
        self._open = open_channel
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}

    def get(self, endpoint: Endpoint) -> grpc.aio.Channel:
        """The channel to ``endpoint``; opened at the first use."""
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._open(endpoint)
        return channel

    async def close(self) -> None:
        """Close every channel; calls in flight are cancelled."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
