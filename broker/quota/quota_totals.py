"""How much of their quotas users have used, and how long they had to wait, as metrics.

Totals are by user, never by client id: a client can invent any number of those. The first users of
a broker have labels of their own; those beyond them share the label ``overflow``.
"""

from collections.abc import Iterator
from typing import Final

from quorate.common.metrics.family import Family, MetricKind, Sample

USERS_SHOWN_MAX: Final = 200
OVERFLOW: Final = "overflow"

_GROUP: Final = "client-quota-metrics"
_LABELS: Final = ("quota", "user")

QUOTA_USED: Final = Family(
    "quorate_client_quota_used_total",
    MetricKind.COUNTER,
    _GROUP,
    "used",
    "What users with a quota have used of it: bytes, or ms for request_percentage. The user is "
    "empty for quotas of client ids alone; beyond 200 users it is overflow.",
    _LABELS,
)
QUOTA_THROTTLED: Final = Family(
    "quorate_client_quota_throttled_seconds_total",
    MetricKind.COUNTER,
    _GROUP,
    "throttle-time",
    "How long users were muted because they exceeded a quota.",
    _LABELS,
)


class QuotaTotals:
    """The totals of one quota of one user, since the broker started."""

    __slots__ = ("throttled_ms", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.throttled_ms = 0.0


class TotalsByUser:
    """The totals of all users of one broker."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], QuotaTotals] = {}
        self._users: set[str] = set()

    def of(self, quota: str, user: str) -> QuotaTotals:
        """Return the totals of a user, or those that many share if too many are known already."""
        if user not in self._users:
            if len(self._users) >= USERS_SHOWN_MAX:
                user = OVERFLOW
            self._users.add(user)
        return self._totals.setdefault((quota, user), QuotaTotals())

    def samples(self) -> Iterator[Sample]:
        for labels, totals in tuple(self._totals.items()):
            yield Sample(QUOTA_USED, totals.used, labels)
            yield Sample(QUOTA_THROTTLED, totals.throttled_ms / 1_000, labels)
