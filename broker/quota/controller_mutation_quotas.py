"""The quota of controller mutations: how many partitions clients may create, add and delete
(KIP-599).

Only the token bucket enforces the quota. The rate beside it is a metric (Q9).

The buckets are not replicated. A new controller takes every bucket for empty at the beginning of
its tenure, so that a change of the controller gives nobody a second burst; a debt is forgiven
(Q15).
"""

from collections.abc import Iterator
from typing import Final

from quorate.broker.quota.quota_errors import MutationQuotaExceeded
from quorate.broker.quota.token_bucket import TokenBucket
from quorate.broker.quota.windowed_rate import QuotaWindow, WindowedAverage, WindowedRate
from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.metadata_log.client_quotas import (
    CONTROLLER_MUTATION_RATE,
    ClientQuotaEntity,
    ClientQuotas,
    QuotaInForce,
    quota_in_force,
)

GROUP: Final = "ControllerMutation"
_LABELS: Final = ("user", "client_id")


def _mutation(name: str, kafka_name: str, doc: str) -> Family:
    name = f"quorate_controller_mutation_{name}"
    return Family(name, MetricKind.GAUGE, GROUP, kafka_name, doc, _LABELS)


RATE: Final = _mutation("rate", "rate", "Partitions created, added and deleted per second.")
TOKENS: Final = _mutation("tokens", "tokens", "Left in the bucket; below 0 while throttled.")
THROTTLE_TIME: Final = _mutation(
    "throttle_time_ms",
    "throttle-time",
    "Average time that clients were told to wait, of the last windows.",
)

CACHED_BUCKETS_MAX: Final = 10_000
"""The number of clients above which full buckets are forgotten. A client can invent an unlimited
number of client ids.
"""


class _Usage:
    """The usage of one quota by one client, or by all clients that share it."""

    __slots__ = ("bucket", "rate", "throttle_times_ms")

    def __init__(self, bucket: TokenBucket, window: QuotaWindow) -> None:
        self.bucket = bucket
        self.rate = WindowedRate(window)
        self.throttle_times_ms = WindowedAverage(window)


class ControllerMutationQuota:
    """The quota of one request. Each topic of the request is recorded, and then the client is told
    how long to wait.

    In strict mode (new clients), a mutation is refused while the bucket is in debt. In permissive
    mode (old clients, which do not know the error), nothing is refused and the debt grows (Q4).
    """

    def __init__(self, usage: _Usage | None, quota: QuotaInForce | None, *, strict: bool) -> None:
        self._usage = usage
        self._quota = quota
        self._strict = strict
        self._throttle_time_ms = 0
        self._throttled_ms = 0.0

    def record(self, mutations: int, now_ms: float) -> None:
        """Charge the quota for ``mutations`` partitions.

        Raises:
            MutationQuotaExceeded: in strict mode, while there is a debt. Nothing is charged
                then.
        """
        if self._usage is None or self._quota is None:
            return
        bucket = self._usage.bucket
        if self._strict:
            self._note(bucket.throttle_time_ms(now_ms), now_ms)
            if self._throttle_time_ms:
                raise MutationQuotaExceeded(self._throttle_time_ms, self._message())
        bucket.take(mutations, now_ms)
        self._usage.rate.record(mutations, now_ms)
        if not self._strict:
            self._note(bucket.throttle_time_ms(now_ms), now_ms)

    def throttle_time_ms(self, now_ms: float) -> int:
        """Return how long the client still has to wait, in ms. The time until its response is sent
        counts as waiting (Q5).
        """
        return max(0, round(self._throttle_time_ms - (now_ms - self._throttled_ms)))

    def _note(self, throttle_time_ms: int, now_ms: float) -> None:
        if throttle_time_ms and self._usage is not None:
            self._usage.throttle_times_ms.record(throttle_time_ms, now_ms)
        self._throttle_time_ms = throttle_time_ms
        self._throttled_ms = now_ms

    def _message(self) -> str:
        limit = 0.0 if self._quota is None else self._quota.limit
        return (
            f"the quota of {limit:g} partitions per second ({CONTROLLER_MUTATION_RATE}) is "
            f"exceeded: try again in {self._throttle_time_ms} ms"
        )


class ControllerMutationQuotaManager:
    """The token buckets of all clients, during the tenure of one controller.

    The rate R of a bucket is the quota Q, and its burst B is Q times the span of all windows (Q2,
    Q8). ``empty_since_ms`` is the beginning of a tenure that follows another one: what clients used
    before is not known, so their buckets are taken for empty then. None means that there was no
    controller before.
    """

    def __init__(self, window: QuotaWindow, empty_since_ms: float | None = None) -> None:
        self._window = window
        self._empty_since_ms = empty_since_ms
        self._usages: dict[ClientQuotaEntity, _Usage] = {}

    def quota_for(
        self,
        quotas: ClientQuotas,
        user: str,
        client_id: str,
        *,
        strict: bool,
        now_ms: float,
    ) -> ControllerMutationQuota:
        """Return the quota for one request of that user and client id."""
        quota = (
            quota_in_force(quotas, user, client_id, CONTROLLER_MUTATION_RATE) if quotas else None
        )
        usage = None if quota is None else self._usage(quota, now_ms)
        return ControllerMutationQuota(usage, quota, strict=strict)

    def metrics(self, now_ms: float) -> Iterator[Sample]:
        """Yield the rate, the tokens and the average throttle time of each client that has used its
        quota (Q9).
        """
        for shared_by, usage in self._usages.items():
            labels = (shared_by.user or "", shared_by.client_id or "")
            yield Sample(RATE, usage.rate.per_second(now_ms), labels)
            yield Sample(TOKENS, usage.bucket.tokens(now_ms), labels)
            yield Sample(THROTTLE_TIME, usage.throttle_times_ms.value(now_ms), labels)

    def _usage(self, quota: QuotaInForce, now_ms: float) -> _Usage:
        burst = quota.limit * self._window.span_ms / 1_000
        usage = self._usages.get(quota.shared_by)
        if usage is None:
            self._make_room(now_ms)
            usage = _Usage(self._bucket(quota.limit, burst, now_ms), self._window)
            self._usages[quota.shared_by] = usage
        elif usage.bucket.rate != quota.limit:
            usage.bucket.set_limits(quota.limit, burst, now_ms)
        return usage

    def _bucket(self, limit: float, burst: float, now_ms: float) -> TokenBucket:
        """Return the bucket of a client of which nothing is known."""
        bucket = TokenBucket(limit, burst, now_ms)
        if self._empty_since_ms is not None:
            filled = limit * max(0.0, now_ms - self._empty_since_ms) / 1_000
            bucket.take(max(0.0, burst - filled), now_ms)
        return bucket

    def _make_room(self, now_ms: float) -> None:
        """Forget full buckets if there are too many. A new bucket is full too, so no client gains
        by this.
        """
        if len(self._usages) < CACHED_BUCKETS_MAX:
            return
        self._usages = {
            shared_by: usage
            for shared_by, usage in self._usages.items()
            if not usage.bucket.is_full(now_ms)
        }
