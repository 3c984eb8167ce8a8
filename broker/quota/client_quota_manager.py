"""Client quotas of one broker: the bytes that clients produce and fetch, and the broker's time.

Each broker counts separately (KIP-13, KIP-124). A request of a client without quotas costs one
comparison, plus one look-up in a dictionary while any other client has quotas.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from quorate.broker.quota.windowed_rate import QuotaWindow, WindowedRate
from quorate.metadata_log.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotaEntity,
    ClientQuotas,
    quota_in_force,
)
from quorate.metadata_log.image import Changes, Image

T = TypeVar("T")

CACHED_CLIENTS_MAX: Final = 10_000
"""The number of clients above which those without recent use are forgotten. A client can invent an
unlimited number of client ids.
"""

_MS_PER_SECOND_OF_PERCENT: Final = 10.0

Rates = dict[tuple[str, ClientQuotaEntity], WindowedRate]


class ClientLimit:
    """One quota of one client, and the usage of all clients that share it."""

    __slots__ = ("_most_ms", "_per_second", "_rate")

    def __init__(self, per_second: float, rate: WindowedRate, most_ms: float | None = None) -> None:
        self._per_second = per_second
        self._rate = rate
        self._most_ms = most_ms

    def use(self, amount: float, now_ms: float) -> int:
        """Count ``amount``, and return for how long to throttle the client, in ms."""
        self._rate.record(amount, now_ms)
        throttle_ms = self._rate.throttle_time_ms(self._per_second, now_ms)
        return throttle_ms if self._most_ms is None else min(throttle_ms, int(self._most_ms))


class ClientLimits(NamedTuple):
    """The quotas of one client. A field is None if the client has no such quota."""

    produced: ClientLimit | None
    fetched: ClientLimit | None
    time: ClientLimit | None


NO_LIMITS: Final = ClientLimits(None, None, None)
NO_QUOTAS: Final[ClientQuotas] = {}


class ClientQuotaManager:
    """The quotas and the usage of all clients of one broker.

    ``window`` is set by quota.window.num and quota.window.size.seconds.
    """

    def __init__(
        self,
        window: QuotaWindow,
        now_ms: Callable[[], float],
        quotas: ClientQuotas = NO_QUOTAS,
    ) -> None:
        self._window = window
        self.now_ms = now_ms
        self._quotas = quotas
        self.are_set = bool(quotas)
        """True if any client has a quota."""
        self._limits: dict[tuple[str, str], ClientLimits] = {}
        self._rates: Rates = {}

    def on_image(self, image: Image, _changes: Changes) -> None:
        """Take over the quotas of the newest metadata image."""
        self.set_quotas(image.client_quotas)

    def set_quotas(self, quotas: ClientQuotas) -> None:
        """Put ``quotas`` in force. The earlier usage of the clients still counts."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self.are_set = bool(quotas)
            self._limits.clear()

    def limits_of(self, user: str, client_id: str) -> ClientLimits:
        """Return the quotas of one client."""
        if not self.are_set:
            return NO_LIMITS
        limits = self._limits.get((user, client_id))
        if limits is None:
            limits = self._limits[user, client_id] = self._find_limits(user, client_id)
        return limits

    def _find_limits(self, user: str, client_id: str) -> ClientLimits:
        self._make_room()

        def limit(key: str, unit: float = 1.0, most_ms: float | None = None) -> ClientLimit | None:
            quota = quota_in_force(self._quotas, user, client_id, key)
            if quota is None:
                return None
            rate = self._rates.setdefault((key, quota.shared_by), WindowedRate(self._window))
            return ClientLimit(quota.limit * unit, rate, most_ms)

        return ClientLimits(
            limit(PRODUCER_BYTE_RATE),
            limit(CONSUMER_BYTE_RATE),
            limit(REQUEST_PERCENTAGE, _MS_PER_SECOND_OF_PERCENT, self._window.sample_ms),
        )

    def _make_room(self) -> None:
        if len(self._limits) < CACHED_CLIENTS_MAX and len(self._rates) < CACHED_CLIENTS_MAX:
            return
        now_ms = self.now_ms()
        self._limits.clear()
        self._rates = {
            shared: rate for shared, rate in self._rates.items() if not rate.is_silent(now_ms)
        }


class TimedCoroutine(Generic[T]):
    """Awaits a coroutine and measures the time that it runs, without the time that it waits."""

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
            except BaseException as error:  # noqa: BLE001 - the coroutine handles it
                value, resume = error, self._coroutine.throw


def unlimited() -> ClientQuotaManager:
    """Return the quota manager of a broker whose clients have no quotas."""
    return ClientQuotaManager(QuotaWindow(1, 1), lambda: 0.0)
