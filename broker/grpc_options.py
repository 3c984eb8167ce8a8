"""Channel and server options that every gRPC endpoint of a broker shares."""

from typing import Final

GRPC_MESSAGE_BYTES_MAX: Final = 512 << 20
"""Replication frames hold at least one whole batch, and batches have their own limit."""

GRPC_REQUEST_BYTES_MAX: Final = 16 << 20
"""What a client may send. A request is received before anybody can look whose it is."""

GrpcOption = tuple[str, int]

GRPC_OPTIONS: Final[tuple[GrpcOption, ...]] = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_frame_size", 1 << 20),
)
"""Reconnects are quick: a restarted broker must be followed again within the lag limit. But one
that is busy has a second to take part in a handshake (``min_reconnect``): at 100 ms, connections
that a controller opens to many at once break off and begin again.
HTTP/2 frames are large: the default of 16 KiB costs a fifth of the CPU of a replication stream.
``so_reuseport`` off: a second process on a taken port fails instead of sharing it."""
