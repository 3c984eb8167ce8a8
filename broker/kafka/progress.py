"""Since when nothing has moved on a connection, where it was the client's turn."""

from typing import Final

from broker.kafka.outbox import Outbox

PROGRESS_BYTES: Final = 64 << 10
"""Of a frame: who sends less of one between two looks sends nothing."""


class Progress:
    """Times in s, of the event loop."""

    __slots__ = ("_moved_at_s", "_trickled_bytes")

    def __init__(self, now_s: float) -> None:
        self._moved_at_s = now_s
        self._trickled_bytes = 0

    def received(self, count: int, now_s: float, *, is_whole: bool) -> None:
        """``count`` bytes came; ``is_whole``: a frame begins or ends with them, so that it is no
        trickle."""
        self._trickled_bytes += count
        if is_whole or self._trickled_bytes >= PROGRESS_BYTES:
            self._trickled_bytes = 0
            self._moved_at_s = now_s

    def sent(self, now_s: float) -> None:
        """An answer was given to the transport."""
        self._moved_at_s = now_s

    def quiet_s(self, now_s: float, outbox: Outbox, *, is_our_turn: bool) -> float:
        """What is sent and not read makes it the client's turn, whatever is carried out."""
        moves = is_our_turn if outbox.is_free else outbox.has_moved()
        if moves:
            self._moved_at_s = now_s
        return now_s - self._moved_at_s
