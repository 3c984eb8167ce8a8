"""Decides when a broker that failed starts again: soon, and later if it goes on failing."""

from typing import Final

FIRST_DELAY_MS: Final = 1_000
LONGEST_DELAY_MS: Final = 60_000
RAN_LONG_MS: Final = 300_000
"""A broker that ran for so long has recovered from what failed it before."""


class RestartDelays:
    """The delays of one broker's restarts."""

    def __init__(self) -> None:
        self._next_ms = FIRST_DELAY_MS

    def after_failure(self, ran_ms: int) -> int:
        """Return how long to wait before the next start, in ms, after it ran for ``ran_ms``."""
        delay = FIRST_DELAY_MS if ran_ms >= RAN_LONG_MS else self._next_ms
        self._next_ms = min(2 * delay, LONGEST_DELAY_MS)
        return delay
