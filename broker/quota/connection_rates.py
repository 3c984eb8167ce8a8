"""Limits how many connections a broker begins per second, in all and from each address (KIP-612).

A connection over a rate is accepted and its handling delayed. Each takes a token of a bucket, and
waits until the tokens that it and those before it owe have come in. Kafka closes a connection over
the rate of its address after a delay, so that the client has to connect again; here only those are
closed that would wait for too long.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.broker.quota.token_bucket import TokenBucket
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.common.network_address import network_of, plain_address
from quorate.metadata_log.client_quotas import CONNECTION_CREATION_RATE, EVERYBODY, ClientQuotas
from quorate.metadata_log.image import Changes, Image

UNLIMITED_RATE: Final = 2**31 - 1

DELAY_MAX_MS: Final = 10_000
"""The longest delay. Clients give a new connection up after about this time."""

WAITING_MAX: Final = 1_000
"""The number of connections that may wait at once."""

CACHED_ADDRESSES_MAX: Final = 10_000
"""The number of addresses above which those without recent connections are forgotten."""


class ConnectionDelay(NamedTuple):
    """The time that a new connection waits, and the limit that makes it wait or be refused."""

    delay_ms: int
    limit: str
    is_refused: bool = False


AT_ONCE: Final = ConnectionDelay(0, "")


class ConnectionRates:
    """The token buckets of one broker.

    A bucket holds the connections of all windows, as the windowed rate of Kafka admits at once.
    ``broker_rate`` returns the limit for all addresses together.
    """

    def __init__(
        self, window: QuotaWindow, now_ms: Callable[[], float], broker_rate: Callable[[], int]
    ) -> None:
        self._span_s = window.span_ms / 1_000
        self._now_ms = now_ms
        self._broker_rate = broker_rate
        self._by_address: dict[str, float] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._buckets_max = CACHED_ADDRESSES_MAX
        self._all: TokenBucket | None = None
        self.waiting = 0
        """The connections that wait. The caller counts them."""
        self.throttled: dict[str, int] = {"broker": 0, "ip": 0}
        """The connections that had to wait or were refused, by the kind of limit."""

    def on_image(self, image: Image, _changes: Changes) -> None:
        """Take over the quotas of the newest metadata image."""
        self.set_quotas(image.client_quotas)

    def set_quotas(self, quotas: ClientQuotas) -> None:
        """Put the quotas of addresses in force. The earlier connections still count."""
        self._by_address = {
            entity.ip: limits[CONNECTION_CREATION_RATE]
            for entity, limits in quotas.items()
            if entity.ip is not None and CONNECTION_CREATION_RATE in limits
        }
        if not self._by_address:
            self._buckets.clear()

    def admit(self, host: str) -> ConnectionDelay:
        """Count a new connection, and return for how long it has to wait. A connection that is
        refused does not count.
        """
        rate = self._broker_rate()
        if rate >= UNLIMITED_RATE and not self._by_address:
            return AT_ONCE
        now_ms = self._now_ms()
        taken: list[tuple[TokenBucket, str, str]] = []
        if rate < UNLIMITED_RATE:
            taken.append((self._broker_bucket(rate, now_ms), "broker", f"{rate:g} per second"))
        found = self._bucket_of(host, now_ms) if self._by_address else None
        if found is not None:
            limit = f"{CONNECTION_CREATION_RATE}={found.rate:g} of {host}"
            taken.append((found, "ip", limit))
        return self._take(taken, now_ms)

    def _take(self, taken: list[tuple[TokenBucket, str, str]], now_ms: float) -> ConnectionDelay:
        longest, slowest = AT_ONCE, ""
        for bucket, kind, limit in taken:
            bucket.take(1, now_ms)
            delay_ms = bucket.throttle_time_ms(now_ms)
            if delay_ms > longest.delay_ms:
                longest, slowest = ConnectionDelay(delay_ms, limit), kind
        if not longest.delay_ms:
            return AT_ONCE
        self.throttled[slowest] += 1
        if longest.delay_ms > DELAY_MAX_MS or self.waiting >= WAITING_MAX:
            for bucket, _, _ in taken:
                bucket.take(-1, now_ms)
            return longest._replace(is_refused=True)
        return longest

    def _broker_bucket(self, rate: float, now_ms: float) -> TokenBucket:
        if self._all is None:
            self._all = self._new_bucket(rate, now_ms)
        self._keep_up(self._all, rate, now_ms)
        return self._all

    def _bucket_of(self, host: str, now_ms: float) -> TokenBucket | None:
        """Return the bucket of an address, or None if it has no quota. Addresses of one IPv6
        network share the default quota.
        """
        address = plain_address(host)
        rate = self._by_address.get(address)
        if rate is None:
            address = network_of(address)
            rate = self._by_address.get(EVERYBODY)
        if rate is None:
            return None
        bucket = self._buckets.get(address)
        if bucket is None:
            self._make_room(now_ms)
            bucket = self._buckets[address] = self._new_bucket(rate, now_ms)
        self._keep_up(bucket, rate, now_ms)
        return bucket

    def _new_bucket(self, rate: float, now_ms: float) -> TokenBucket:
        return TokenBucket(rate, rate * self._span_s, now_ms)

    def _keep_up(self, bucket: TokenBucket, rate: float, now_ms: float) -> None:
        if bucket.rate != rate:
            bucket.set_limits(rate, rate * self._span_s, now_ms)

    def _make_room(self, now_ms: float) -> None:
        """Forget full buckets if there are too many. A new bucket is full, too."""
        if len(self._buckets) < self._buckets_max:
            return
        self._buckets = {
            address: bucket
            for address, bucket in self._buckets.items()
            if not bucket.is_full(now_ms)
        }
        self._buckets_max = max(CACHED_ADDRESSES_MAX, 2 * len(self._buckets))


def unlimited_rates() -> ConnectionRates:
    """Return the rates of a broker without limits."""
    return ConnectionRates(QuotaWindow(1, 1), lambda: 0.0, lambda: UNLIMITED_RATE)
