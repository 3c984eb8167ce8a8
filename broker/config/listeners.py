"""Where a broker listens, and how much it takes in and gives out at once."""

from typing import Final

from metadata_log.configuration import ConfigKey, Update

LISTENERS: Final = ConfigKey(
    name="listeners",
    type=str,
    default="PLAINTEXT://127.0.0.1:9092",
    doc="Where Kafka clients connect.",
)
ADVERTISED_LISTENERS: Final = ConfigKey(
    name="advertised.listeners",
    type=str,
    default="",
    doc="What clients are told to connect to; empty: the listener's own address.",
)
SOCKET_REQUEST_MAX_BYTES: Final = ConfigKey(
    name="socket.request.max.bytes",
    type=int,
    default=100 << 20,
    at_least=1024,
    doc="Largest Kafka request frame accepted; a larger one closes its connection.",
)
MAX_CONNECTIONS: Final = ConfigKey(
    name="max.connections",
    type=int,
    default=2**31 - 1,
    at_least=1,
    at_most=2**31 - 1,
    doc="Kafka connections that a broker holds; further ones are closed at once.",
)
MAX_CONNECTIONS_PER_IP: Final = ConfigKey(
    name="max.connections.per.ip",
    type=int,
    default=2**31 - 1,
    at_least=1,
    at_most=2**31 - 1,
    doc="Kafka connections from one address; further ones are closed at once.",
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = ConfigKey(
    name="max.connections.per.ip.overrides",
    type=str,
    default="",
    pattern=r"(\s*[^,\s]+:\d{1,10}\s*(,\s*[^,\s]+:\d{1,10}\s*)*)?",
    form="address:number,address:number,…",
    is_list=True,
    doc="Kafka connections from single addresses, in place of max.connections.per.ip.",
)
CONNECTIONS_MAX_IDLE_MS: Final = ConfigKey(
    name="connections.max.idle.ms",
    type=int,
    default=600_000,
    at_least=-1,
    doc="A Kafka connection on which nothing moves for so long, while the broker owes it nothing, "
    "is closed: no whole request, less than 64 KiB of one, nothing of an answer. -1: never.",
)
QUEUED_MAX_REQUEST_BYTES: Final = ConfigKey(
    name="queued.max.request.bytes",
    type=int,
    default=128 << 20,
    at_least=-1,
    doc="Bytes of Kafka requests that a broker holds, over all connections, received in part or "
    "not answered yet; while it holds so many, it reads on one large request at a time. -1: no "
    "bound.",
)
QUEUED_MAX_RESPONSE_BYTES: Final = ConfigKey(
    name="queued.max.response.bytes",
    type=int,
    default=256 << 20,
    at_least=-1,
    doc="Bytes of answers that a broker holds, over all connections, read from its logs and not "
    "sent yet; while it holds so many, fetches wait. Readers of ranges over gRPC have as much for "
    "themselves. -1: no bound.",
)
FETCH_MAX_BYTES: Final = ConfigKey(
    name="fetch.max.bytes",
    type=int,
    default=55 << 20,
    at_least=1024,
    doc="Largest fetch response, whatever the client asks for.",
    update=Update.CLUSTER_WIDE,
)
