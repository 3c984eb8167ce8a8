"""The usage of one quota by all clients that share it, and the time until which they are muted.

The mute belongs to the users and client ids that a quota is for, and not to the connection that
exceeded it. A client that connects anew, or by many connections at once, has to wait like the
connection that it left (Q5).
"""

import math
from typing import Final

from quorate.broker.quota.quota_totals import QuotaTotals
from quorate.broker.quota.windowed_rate import QuotaWindow, WindowedRate

TURN_MS: Final = 10
"""The time between two requests that waited for the end of the same mute. If all of them started
at once, the usage of each would be counted only after all of them had been let in.
"""

TURNS_SPAN_MS: Final = 1_000
"""The time after a mute in which requests take turns. Connections that are gone leave their turns
unused, and this is the most that such turns can delay others.
"""

WAITING_MAX: Final = 1_000
"""The number of connections that may wait for the end of one mute. A client that connects anew
for each request leaves a waiting socket behind each time.
"""


class SharedUsage:
    """The windowed rate of one quota, and the mute of the clients that share it.

    All times are in ms, by one clock. ``most_ms`` limits a single mute; None means no limit.
    ``totals`` are those of the user, for the metrics.
    """

    __slots__ = (
        "_limit",
        "_most_ms",
        "_muted_until_ms",
        "_next_turn_ms",
        "_rate",
        "_totals",
        "_waiting",
    )

    def __init__(
        self,
        window: QuotaWindow,
        limit: float,
        most_ms: float | None,
        totals: QuotaTotals | None = None,
    ) -> None:
        self._rate = WindowedRate(window)
        self._limit = limit
        self._most_ms = most_ms
        self._muted_until_ms = -math.inf
        self._next_turn_ms = -math.inf
        self._waiting = 0
        self._totals = totals or QuotaTotals()

    @property
    def limit(self) -> float:
        """The quota in force."""
        return self._limit

    def set_limit(self, limit: float, now_ms: float) -> None:
        """Put another limit in force. The earlier usage still counts, and a mute is measured
        anew, so that a quota that was raised ends the mute of those who waited for the old one.
        """
        if limit != self._limit:
            self._limit = limit
            self._muted_until_ms = now_ms + self._throttle_time_ms(now_ms)

    def use(self, amount: float, now_ms: float) -> int:
        """Count ``amount``, and return for how long to mute the clients, in ms."""
        self._rate.record(amount, now_ms)
        self._totals.used += amount
        throttle_ms = self._throttle_time_ms(now_ms)
        if throttle_ms:
            self.mute(throttle_ms, now_ms)
        return self.muted_ms(now_ms)

    def mute(self, time_ms: int, now_ms: float) -> None:
        """Mute the clients for this time from now on, or longer if they are muted already."""
        until_ms = now_ms + time_ms
        since_ms = max(self._muted_until_ms, now_ms)
        if until_ms > since_ms:
            self._totals.throttled_ms += until_ms - since_ms
            self._muted_until_ms = until_ms

    def muted_ms(self, now_ms: float) -> int:
        """Return for how much longer the clients are muted, in ms."""
        left_ms = self._muted_until_ms - now_ms
        return math.ceil(round(left_ms, 3)) if left_ms > 0 else 0

    def wait_ms(self, now_ms: float) -> int:
        """Return for how long a request has to wait for its turn, in ms. It is 0 while the clients
        are not muted. Whoever has waited must ask again.
        """
        if now_ms >= self._muted_until_ms:
            return 0
        turn_ms = max(self._muted_until_ms, self._next_turn_ms)
        if turn_ms < self._muted_until_ms + TURNS_SPAN_MS:
            self._next_turn_ms = turn_ms + TURN_MS
        return math.ceil(round(turn_ms - now_ms, 3))

    def take_place(self) -> bool:
        """Count one more connection that waits, and return True. Return False if there are too
        many already.
        """
        if self._waiting >= WAITING_MAX:
            return False
        self._waiting += 1
        return True

    def leave_place(self) -> None:
        """Count one connection less that waits."""
        self._waiting -= 1

    def is_forgettable(self, now_ms: float) -> bool:
        """Return whether a new usage would be equal to this one."""
        is_free = now_ms >= self._muted_until_ms and not self._waiting
        return is_free and self._rate.is_silent(now_ms)

    def _throttle_time_ms(self, now_ms: float) -> int:
        throttle_ms = self._rate.throttle_time_ms(self._limit, now_ms)
        return throttle_ms if self._most_ms is None else min(throttle_ms, int(self._most_ms))
