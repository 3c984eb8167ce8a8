"""What one connection may hold, and what all of one server share."""

from dataclasses import dataclass

from broker.client_memory import ClientMemory
from broker.config.listeners import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
)
from broker.kafka.frames import RECEIVE_BUFFER_BYTES
from metadata_log.configuration import Values, list_items


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold.

    ``in_flight_bytes``: requests and the largest answers they may get; one request alone may exceed
    it. ``frame_bytes``: socket.request.max.bytes. ``login_ms``: how long a client may take to
    authenticate: whoever does not want to come in shall not stand in the door.
    """

    frame_bytes: int
    login_ms: int = 30_000
    in_flight_bytes: int = 128 << 20
    in_flight_requests: int = 128


class ConnectionCounts:
    """How many connections there may be of all clients, and of each address."""

    def __init__(self, config: Values) -> None:
        self._max = config[MAX_CONNECTIONS]
        self._per_address_max = config[MAX_CONNECTIONS_PER_IP]
        self._overrides: dict[str, int] = {}
        for item in list_items(config[MAX_CONNECTIONS_PER_IP_OVERRIDES]):
            address, _, count = item.rpartition(":")
            self._overrides[address.strip("[]")] = int(count)

    def exceeded(self, connections: int, address: str, from_address: int) -> str | None:
        """The limit that is exceeded, with so many connections, so many of them from ``address``;
        None: none is."""
        if connections > self._max:
            return f"{MAX_CONNECTIONS.name}={self._max}"
        override = self._overrides.get(address)
        if override is not None:
            if from_address > override:
                return f"{MAX_CONNECTIONS_PER_IP_OVERRIDES.name}={address}:{override}"
        elif from_address > self._per_address_max:
            return f"{MAX_CONNECTIONS_PER_IP.name}={self._per_address_max}"
        return None


class SharedMemory:
    """What the connections of one server have in common: bounds, and where they receive."""

    __slots__ = ("bounds", "receive_buffer")

    def __init__(self, bounds: ClientMemory) -> None:
        self.bounds = bounds
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
