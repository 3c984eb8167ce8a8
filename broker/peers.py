"""gRPC channels to other processes of the cluster, one per endpoint, shared by all users."""

import grpc.aio

from broker.grpc_options import GRPC_OPTIONS
from metadata_log.types import Endpoint


class PeerChannels:
    """A pool of channels. gRPC multiplexes calls and reconnects by itself, so channels are kept."""

    def __init__(self) -> None:
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}

    def get(self, endpoint: Endpoint) -> grpc.aio.Channel:
        """The channel to ``endpoint``; opened at the first use."""
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = grpc.aio.insecure_channel(str(endpoint), options=list(GRPC_OPTIONS))
            self._channels[endpoint] = channel
        return channel

    async def close(self) -> None:
        """Close every channel; calls in flight are cancelled."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
