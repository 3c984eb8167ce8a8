"""How long a client is kept waiting after an answer, because it has used up a quota."""

import struct
from typing import Final

_INT32: Final = struct.Struct(">i")
_INT32_MAX: Final = 2**31 - 1


class Throttle:
    """Of one request. Its answer goes out first, then nothing more is read for ``time_ms`` (Q5)."""

    __slots__ = ("time_ms",)

    def __init__(self) -> None:
        self.time_ms = 0

    def at_least(self, time_ms: int) -> None:
        """Several quotas may be exceeded: the more constraining one counts (Q11)."""
        self.time_ms = min(max(self.time_ms, time_ms), _INT32_MAX)


def tell(answer: list[bytes | memoryview], place: int, time_ms: int) -> None:
    """Put ``time_ms`` into an encoded answer whose throttle_time_ms is at ``place``: from its
    beginning, or, where that is negative, from its end.
    """
    index = 0 if place >= 0 else -1
    piece = bytearray(answer[index])
    _INT32.pack_into(piece, place if place >= 0 else len(piece) + place, time_ms)
    answer[index] = bytes(piece)
