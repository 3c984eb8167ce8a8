"""What one connection may hold, and what all of one server share."""

from dataclasses import dataclass

from broker.client_memory import ClientMemory
from broker.kafka.frames import RECEIVE_BUFFER_BYTES


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


class SharedMemory:
    """What the connections of one server have in common: bounds, and where they receive."""

    __slots__ = ("bounds", "receive_buffer")

    def __init__(self, bounds: ClientMemory) -> None:
        self.bounds = bounds
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
