"""The gRPC connections of a client to brokers.

This module imports grpc: see `quorate.spark.cluster_client`.
"""

import grpc

from quorate.client.security import ClientSecurity

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # Brokers are peers, not web pages, so a proxy of the environment must not be used.
    ("grpc.enable_http_proxy", 0),
    # A broker that restarts must be found again within the retries, not after gRPC's minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class BrokerChannels:
    """One connection to each broker that was asked for; close them."""

    def __init__(self, security: ClientSecurity) -> None:
        self._security = security
        self._open: dict[str, grpc.Channel] = {}

    def to(self, address: str) -> grpc.Channel:
        """Return the connection to a gRPC address. The first call opens it."""
        channel = self._open.get(address)
        if channel is None:
            channel = self._open[address] = self._new(address)
        return channel

    def drop(self, address: str) -> None:
        """Close a connection; its calls fail, and the next call opens another one."""
        if (channel := self._open.pop(address, None)) is not None:
            channel.close()

    def close(self) -> None:
        """Close all connections. Open streams fail."""
        for address in list(self._open):
            self.drop(address)

    def _new(self, address: str) -> grpc.Channel:
        credentials = self._security.channel_credentials()
        if credentials is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        options = (*CHANNEL_OPTIONS, *self._security.channel_options())
        return grpc.secure_channel(address, credentials, options=options)
