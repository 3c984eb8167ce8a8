"""The limits of one connection, and the memory that all connections of a server share."""

from dataclasses import dataclass

from quorate.broker.config.listeners import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
)
from quorate.broker.kafka.wire.frame_assembler import RECEIVE_BUFFER_BYTES
from quorate.broker.quota.client_memory import ClientMemory
from quorate.common.configuration import ConfigKey, Values, list_items


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one connection.

    ``in_flight_bytes`` limits the requests in flight and the largest responses that they may get;
    one request alone may exceed it. ``frame_bytes`` is socket.request.max.bytes. ``login_ms`` is
    how long a client may take to authenticate, so that no connection is held by a client that never
    does.
    """

    frame_bytes: int
    login_ms: int = 30_000
    in_flight_bytes: int = 128 << 20
    in_flight_requests: int = 128


class ConnectionCounts:
    """The limits on the number of connections, in total and from each address."""

    def __init__(self, config: Values, most: ConfigKey[int] = MAX_CONNECTIONS) -> None:
        """``most`` is the key of the limit in total."""
        self._most = most
        self._max = config[most]
        self._per_address_max = config[MAX_CONNECTIONS_PER_IP]
        self._overrides: dict[str, int] = {}
        for item in list_items(config[MAX_CONNECTIONS_PER_IP_OVERRIDES]):
            address, _, count = item.rpartition(":")
            self._overrides[address.strip("[]")] = int(count)

    def exceeded(self, connections: int, address: str, from_address: int) -> str | None:
        """Return the limit that is exceeded, or None if none is. There are ``connections`` in
        all, and ``from_address`` of them come from ``address``.
        """
        if connections > self._max:
            return f"{self._most.name}={self._max}"
        override = self._overrides.get(address)
        if override is not None:
            if from_address > override:
                return f"{MAX_CONNECTIONS_PER_IP_OVERRIDES.name}={address}:{override}"
        elif from_address > self._per_address_max:
            return f"{MAX_CONNECTIONS_PER_IP.name}={self._per_address_max}"
        return None


class SharedMemory:
    """The memory limits and the receive buffer that the connections of one server share."""

    __slots__ = ("bounds", "receive_buffer")

    def __init__(self, bounds: ClientMemory) -> None:
        self.bounds = bounds
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
