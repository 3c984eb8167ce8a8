"""Client quotas of one broker: the bytes that clients produce and fetch, and the broker's time.

Each broker counts separately (KIP-13, KIP-124). A request of a client without quotas costs one
comparison, plus one look-up in a dictionary while any other client has quotas.
"""

import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from quorate.broker.quota.quota_totals import TotalsByUser
from quorate.broker.quota.shared_usage import SharedUsage
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.metadata_log.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotaEntity,
    ClientQuotas,
    quota_in_force,
)
from quorate.metadata_log.image import Changes, Image

T = TypeVar("T")

CACHED_CLIENTS_MAX: Final = 10_000
"""The number of clients above which those without recent use are forgotten, and then half of the
client ids. A client can invent an unlimited number of client ids.
"""

_MS_PER_SECOND_OF_PERCENT: Final = 10.0

FETCH_BYTES_UNLIMITED: Final = 2**31 - 1


class ClientLimits(NamedTuple):
    """The quotas of one client. A field is None if the client has no such quota."""

    produced: SharedUsage | None
    fetched: SharedUsage | None
    time: SharedUsage | None
    mutations: SharedUsage | None = None
    """The mute of old clients. The controller counts the mutations and says how long to wait."""
    fetch_bytes_max: int = FETCH_BYTES_UNLIMITED
    """The most bytes that one Fetch may return. A larger response would mute the client for longer
    than all windows together.
    """


class QuotaTurn:
    """The place of one request among those that wait for the end of a mute (Q5)."""

    __slots__ = ("_now_ms", "_usages")

    def __init__(self, usages: Sequence[SharedUsage], now_ms: Callable[[], float]) -> None:
        self._usages = usages
        self._now_ms = now_ms

    def wait_ms(self) -> int:
        """Return for how long the request has to wait now, in ms."""
        now_ms = self._now_ms()
        return max(usage.wait_ms(now_ms) for usage in self._usages)

    def take(self) -> bool:
        """Take a place among those that wait, and return True. Return False if none is left."""
        for number, usage in enumerate(self._usages):
            if not usage.take_place():
                for taken in self._usages[:number]:
                    taken.leave_place()
                return False
        return True

    def leave(self) -> None:
        """Leave the place that was taken."""
        for usage in self._usages:
            usage.leave_place()


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
        self.are_set = _has_clients(quotas)
        """True if any client has a quota."""
        self._limits: dict[tuple[str, str], ClientLimits] = {}
        self._usages: dict[tuple[str, ClientQuotaEntity], SharedUsage] = {}
        self._usages_max = CACHED_CLIENTS_MAX
        self.totals = TotalsByUser()

    def on_image(self, image: Image, _changes: Changes) -> None:
        """Take over the quotas of the newest metadata image."""
        self.set_quotas(image.client_quotas)

    def set_quotas(self, quotas: ClientQuotas) -> None:
        """Put ``quotas`` in force. The earlier usage of the clients still counts."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self.are_set = _has_clients(quotas)
            self._limits.clear()

    def limits_of(self, user: str, client_id: str) -> ClientLimits:
        """Return the quotas of one client."""
        if not self.are_set:
            return NO_LIMITS
        limits = self._limits.get((user, client_id))
        if limits is None:
            limits = self._limits[user, client_id] = self._find_limits(user, client_id)
        return limits

    def turn_of(self, limits: ClientLimits, used: SharedUsage | None) -> QuotaTurn | None:
        """Return the turn of a request that counts for ``used`` and for the time of its client,
        or None if the client has neither quota.
        """
        usages = [usage for usage in (limits.time, used) if usage is not None]
        return QuotaTurn(usages, self.now_ms) if usages else None

    def _find_limits(self, user: str, client_id: str) -> ClientLimits:
        now_ms = self.now_ms()
        self._make_room(now_ms)

        def usage(key: str, unit: float = 1.0, most_ms: float | None = None) -> SharedUsage | None:
            quota = quota_in_force(self._quotas, user, client_id, key)
            if quota is None:
                return None
            limit = quota.limit * unit
            found = self._usages.get((key, quota.shared_by))
            if found is None:
                totals = self.totals.of(key, quota.shared_by.user or "")
                found = SharedUsage(self._window, limit, most_ms, totals)
                self._usages[key, quota.shared_by] = found
            found.set_limit(limit, now_ms)
            return found

        produced = usage(PRODUCER_BYTE_RATE)
        fetched = usage(CONSUMER_BYTE_RATE)
        spent = usage(REQUEST_PERCENTAGE, _MS_PER_SECOND_OF_PERCENT, self._window.sample_ms)
        mutations = usage(CONTROLLER_MUTATION_RATE)
        if produced is None and fetched is None and spent is None and mutations is None:
            return NO_LIMITS
        fetch_bytes_max = self._fetch_bytes_max(user, client_id)
        return ClientLimits(produced, fetched, spent, mutations, fetch_bytes_max)

    def _fetch_bytes_max(self, user: str, client_id: str) -> int:
        """Return what a client may fetch in all windows but one, as in Kafka."""
        quota = quota_in_force(self._quotas, user, client_id, CONSUMER_BYTE_RATE)
        if quota is None:
            return FETCH_BYTES_UNLIMITED
        span_s = max(1, self._window.samples - 1) * self._window.sample_ms / 1_000
        return max(1, int(min(quota.limit * span_s, FETCH_BYTES_UNLIMITED)))

    def _make_room(self, now_ms: float) -> None:
        if len(self._limits) >= CACHED_CLIENTS_MAX:
            self._limits.clear()
        if len(self._usages) < self._usages_max:
            return
        self._limits.clear()
        self._usages = {
            shared: usage
            for shared, usage in self._usages.items()
            if not usage.is_forgettable(now_ms)
        }
        # Only client ids can be invented. Those that are muted for the longest are remembered.
        invented = [shared for shared in self._usages if shared[1].client_id is not None]
        if len(invented) > CACHED_CLIENTS_MAX // 2:
            invented.sort(key=lambda shared: self._usages[shared].muted_ms(now_ms))
            for shared in invented[: len(invented) // 2]:
                del self._usages[shared]
        # With more users than that, the search for room is still rare.
        self._usages_max = max(CACHED_CLIENTS_MAX, 2 * len(self._usages))


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


def _has_clients(quotas: ClientQuotas) -> bool:
    """Return whether any of these quotas is for users or client ids. Others are for addresses."""
    return any(entity.ip is None for entity in quotas)


def unlimited() -> ClientQuotaManager:
    """Return the quota manager of a broker whose clients have no quotas."""
    return ClientQuotaManager(QuotaWindow(1, 1), lambda: 0.0)
