"""Rates of counters between two measurements. Pure."""

from collections.abc import Mapping


class Rates:
    """Remembers counters, and returns by how much each has grown per second since."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}
        self._at_ms = 0.0

    def since_last(self, counters: Mapping[str, float], now_ms: float) -> dict[str, float]:
        """Return the growth per second of each counter that was measured before.

        A counter that has become smaller began again at 0.
        """
        seconds = (now_ms - self._at_ms) / 1_000
        before, self._before, self._at_ms = self._before, counters, now_ms
        if seconds <= 0:
            return {}
        return {
            name: (value - before[name] if value >= before[name] else value) / seconds
            for name, value in counters.items()
            if name in before
        }
