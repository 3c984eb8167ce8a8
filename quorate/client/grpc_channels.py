"""Opens gRPC channels to brokers, and gives the services of one broker over a channel."""

from typing import Any, Final

import grpc
import grpc.aio

from quorate.client.security import ClientSecurity
from quorate_proto.v1 import admin_pb2_grpc, replication_pb2_grpc

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)
"""A proxy from the environment must not be used; descriptions of large clusters are large."""


def open_channel(
    address: str,
    security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
) -> grpc.Channel:
    """Open a channel to ``address``; the caller closes it.

    Raises:
        InvalidOption: a file of ``security`` cannot be read.
    """
    credentials = security.channel_credentials()
    if credentials is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    options = (*CHANNEL_OPTIONS, *security.channel_options())
    return grpc.secure_channel(address, credentials, options=options)


def open_async_channel(
    address: str,
    security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
) -> grpc.aio.Channel:
    """Open a channel for event loops, in the same way as ``open_channel``."""
    credentials = security.channel_credentials()
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    options = (*CHANNEL_OPTIONS, *security.channel_options())
    return grpc.aio.secure_channel(address, credentials, options=options)


class BrokerStubs:
    """The services of one broker that clients use, over one channel, which its opener closes.

    Calls are of the channel's kind: they block, or they are awaited.
    """

    def __init__(self, address: str, channel: Any = None) -> None:  # noqa: ANN401 - of either kind
        self.address = address
        self._channel = open_channel(address) if channel is None else channel
        self.admin = admin_pb2_grpc.AdminStub(self._channel)
        self.range_read = replication_pb2_grpc.RangeReadStub(self._channel)

    def close(self) -> Any:  # noqa: ANN401 - None, or to be awaited
        return self._channel.close()
