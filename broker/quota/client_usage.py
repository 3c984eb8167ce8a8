"""What clients use of this broker: bytes they write and read, and its time (KIP-13, KIP-124).

Each broker counts for itself. Clients without quotas cost a comparison, and, while others have
some, a look into a dictionary.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from broker.quota.windowed_rate import QuotaWindow, WindowedRate
from metadata_log.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    quota_in_force,
)

T = TypeVar("T")

KNOWN_MAX: Final = 10_000
"""Clients can make up client ids without end: from here on those that are silent are forgotten."""

_MS_PER_SECOND_OF_PERCENT: Final = 10.0

Rates = dict[tuple[str, QuotaEntity], WindowedRate]


class Limit:
    """One quota of one client, and what those that share it have used."""

    __slots__ = ("_most_ms", "_per_second", "_rate")

    def __init__(self, per_second: float, rate: WindowedRate, most_ms: float | None = None) -> None:
        self._per_second = per_second
        self._rate = rate
        self._most_ms = most_ms

    def use(self, amount: float, now_ms: float) -> int:
        """Count ``amount``; for how long to throttle, in ms."""
        self._rate.record(amount, now_ms)
        throttle_ms = self._rate.throttle_time_ms(self._per_second, now_ms)
        return throttle_ms if self._most_ms is None else min(throttle_ms, int(self._most_ms))


class Limits(NamedTuple):
    """The quotas of one client; None: it has no such quota."""

    produced: Limit | None
    fetched: Limit | None
    time: Limit | None


NO_LIMITS: Final = Limits(None, None, None)
_NO_QUOTAS: Final[ClientQuotas] = {}


class ClientUsage:
    """All clients of one broker. ``quotas``: as the newest image has them.

    ``window``: quota.window.num and quota.window.size.seconds.
    """

    def __init__(
        self,
        quotas: Callable[[], ClientQuotas],
        window: QuotaWindow,
        now_ms: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._window = window
        self.now_ms = now_ms
        self._seen = _NO_QUOTAS
        self._limits: dict[tuple[str, str], Limits] = {}
        self._rates: Rates = {}

    def of(self, user: str, client_id: str) -> Limits:
        """The quotas of one client."""
        quotas = self._quotas()
        if not quotas:
            return NO_LIMITS
        if quotas is not self._seen:
            self._seen = quotas
            self._limits.clear()
        limits = self._limits.get((user, client_id))
        if limits is None:
            limits = self._limits[user, client_id] = self._of(quotas, user, client_id)
        return limits

    def _of(self, quotas: ClientQuotas, user: str, client_id: str) -> Limits:
        self._make_room()

        def limit(key: str, unit: float = 1.0, most_ms: float | None = None) -> Limit | None:
            quota = quota_in_force(quotas, user, client_id, key)
            if quota is None:
                return None
            rate = self._rates.setdefault((key, quota.shared_by), WindowedRate(self._window))
            return Limit(quota.limit * unit, rate, most_ms)

        return Limits(
            limit(PRODUCER_BYTE_RATE),
            limit(CONSUMER_BYTE_RATE),
            limit(REQUEST_PERCENTAGE, _MS_PER_SECOND_OF_PERCENT, self._window.sample_ms),
        )

    def _make_room(self) -> None:
        if len(self._limits) < KNOWN_MAX and len(self._rates) < KNOWN_MAX:
            return
        now_ms = self.now_ms()
        self._limits.clear()
        self._rates = {
            shared: rate for shared, rate in self._rates.items() if not rate.is_silent(now_ms)
        }


class Timed(Generic[T]):
    """Awaits a coroutine and counts the time it runs, not the time it waits."""

    __slots__ = ("_coroutine", "spent_ms")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.spent_ms = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        resume: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            began_ns = time.perf_counter_ns()
            try:
                awaited = resume(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self.spent_ms += (time.perf_counter_ns() - began_ns) / 1e6
            try:
                value = yield awaited
                resume = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - the coroutine's to deal with
                value, resume = error, self._coroutine.throw


def unlimited() -> ClientUsage:
    """Of a broker whose clients have no quotas."""
    return ClientUsage(lambda: _NO_QUOTAS, QuotaWindow(1, 1), lambda: 0.0)
