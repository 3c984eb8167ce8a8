"""How often something is tried again, and how long the pauses are."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.spark.errors import ClusterUnavailable

INTERVAL_MS_MAX = 2_000


@dataclass(slots=True)
class Retries:
    """A budget of tries in a row without progress; pauses double up to two seconds."""

    retries_max: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep
    _failed: int = field(default=0, init=False)

    def progress(self) -> None:
        """Something was achieved: the budget is whole again."""
        self._failed = 0

    def pause(self, attempt: str, reason: str) -> None:
        """Wait before the next try.

        Raises:
            ClusterUnavailable: the budget is spent; names what was attempted and the last reason.
        """
        self._failed += 1
        if self._failed > self.retries_max:
            raise ClusterUnavailable(f"{attempt} failed {self._failed} times in a row: {reason}")
        interval_ms = min(self.interval_ms * 2 ** (self._failed - 1), INTERVAL_MS_MAX)
        self.sleep(interval_ms / 1000)
