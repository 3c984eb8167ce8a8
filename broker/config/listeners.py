"""The keys of the Kafka listeners: addresses, connections, and limits of requests and responses."""

from typing import Final

from quorate.common.configuration import ConfigKey, Update

LISTENERS: Final = ConfigKey(
    name="listeners",
    type=str,
    default="PLAINTEXT://127.0.0.1:9092",
    doc="The addresses where Kafka clients connect.",
)
ADVERTISED_LISTENERS: Final = ConfigKey(
    name="advertised.listeners",
    type=str,
    default="",
    doc="The addresses that clients are told to connect to. If empty, they are told the address "
    "of the listener itself.",
)
SOCKET_REQUEST_MAX_BYTES: Final = ConfigKey(
    name="socket.request.max.bytes",
    type=int,
    default=100 << 20,
    at_least=1024,
    doc="The largest Kafka request that is accepted. A larger one closes its connection.",
)
MAX_CONNECTIONS: Final = ConfigKey(
    name="max.connections",
    type=int,
    default=2**31 - 1,
    at_least=1,
    at_most=2**31 - 1,
    doc="The most Kafka connections that a broker holds. Further ones are closed at once.",
)
MAX_CONNECTIONS_PER_IP: Final = ConfigKey(
    name="max.connections.per.ip",
    type=int,
    default=2**31 - 1,
    at_least=1,
    at_most=2**31 - 1,
    doc="The most Kafka connections from one address. Further ones are closed at once.",
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = ConfigKey(
    name="max.connections.per.ip.overrides",
    type=str,
    default="",
    pattern=r"(\s*[^,\s]+:\d{1,10}\s*(,\s*[^,\s]+:\d{1,10}\s*)*)?",
    form="address:number,address:number,…",
    is_list=True,
    doc="The most Kafka connections from single addresses, in place of max.connections.per.ip.",
)
MAX_CONNECTION_CREATION_RATE: Final = ConfigKey(
    name="max.connection.creation.rate",
    type=int,
    default=2**31 - 1,
    at_least=1,
    at_most=2**31 - 1,
    doc="The most Kafka connections that a broker begins per second. Further ones wait, and are "
    "closed if they would wait for more than 10 s. Single addresses have the quota "
    "connection_creation_rate (KIP-612).",
    update=Update.CLUSTER_WIDE,
)
CONNECTIONS_MAX_IDLE_MS: Final = ConfigKey(
    name="connections.max.idle.ms",
    type=int,
    default=600_000,
    at_least=-1,
    doc="A Kafka connection is closed when nothing has moved on it for this long while it is the "
    "client's turn: no whole request came, less than 64 KiB of a request came, and nothing of "
    "a response was read. -1 means never.",
)
QUEUED_MAX_REQUEST_BYTES: Final = ConfigKey(
    name="queued.max.request.bytes",
    type=int,
    default=128 << 20,
    at_least=-1,
    doc="The most bytes of Kafka requests that a broker holds over all connections, for requests "
    "that are partly received or not answered yet. While it holds so many, it goes on reading "
    "one large request at a time. -1 means no limit.",
)
QUEUED_MAX_RESPONSE_BYTES: Final = ConfigKey(
    name="queued.max.response.bytes",
    type=int,
    default=256 << 20,
    at_least=-1,
    doc="The most bytes of responses that a broker holds over all connections, for responses that "
    "were read from its logs and are not sent yet. While it holds so many, fetches wait. "
    "Range reads over gRPC have a limit of the same size for themselves. -1 means no limit.",
)
FETCH_MAX_BYTES: Final = ConfigKey(
    name="fetch.max.bytes",
    type=int,
    default=55 << 20,
    at_least=1024,
    doc="The largest response to a fetch, whatever the client asks for.",
    update=Update.CLUSTER_WIDE,
)
