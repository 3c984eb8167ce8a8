"""Retries: how often a call is tried again, and how long the pauses are."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.spark.errors import ClusterUnavailable

INTERVAL_MS_MAX = 2_000


@dataclass(slots=True)
class Retries:
    """A budget of tries in a row without progress. Pauses double up to two seconds."""

    retries_max: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep
    _failed: int = field(default=0, init=False)

    def progress(self) -> None:
        """Note that something was achieved: the budget is whole again."""
        self._failed = 0

    def pause(self, attempt: str, reason: str) -> None:
        """Wait before the next try.

        Args:
            attempt: what is tried, for the message.
            reason: why it failed this time.

        Raises:
            ClusterUnavailable: the budget is spent; names the attempt and the last reason.
        """
        self._failed += 1
        if self._failed > self.retries_max:
            raise ClusterUnavailable(f"{attempt} failed {self._failed} times in a row: {reason}")
        interval_ms = min(self.interval_ms * 2 ** (self._failed - 1), INTERVAL_MS_MAX)
        self.sleep(interval_ms / 1000)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The budget that every call to a cluster has."""

    retries_max: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep

    def new_retries(self) -> Retries:
        """Return a whole budget of tries."""
        return Retries(self.retries_max, self.interval_ms, self.sleep)
