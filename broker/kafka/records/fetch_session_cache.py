"""The fetch sessions of a broker. Their number is limited, and rules decide which one is evicted
(KIP-227).
"""

import secrets
from collections.abc import Callable, Iterator
from typing import Final

from quorate.broker.config.client_keys import MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS
from quorate.broker.config.listeners import CONNECTIONS_MAX_IDLE_MS
from quorate.broker.kafka.records.fetch_session import FetchSession, SessionOwner
from quorate.common.configuration import Values
from quorate.common.metrics.family import Family, MetricKind, Sample

SESSIONS: Final = Family(
    "quorate_fetch_sessions",
    MetricKind.GAUGE,
    "FetchSessionCache",
    "NumIncrementalFetchSessions",
    "Fetch sessions of consumers.",
)
PARTITIONS: Final = Family(
    "quorate_fetch_session_partitions",
    MetricKind.GAUGE,
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    "Partitions in fetch sessions, counted once in each.",
)
EVICTIONS: Final = Family(
    "quorate_fetch_session_evictions_total",
    MetricKind.COUNTER,
    "FetchSessionCache",
    "IncrementalFetchSessionEvictionsPerSec",
    "Fetch sessions that ended to make room for another; with many, raise "
    "max.incremental.fetch.session.cache.slots.",
)

EVICTION_MS: Final = 120_000
"""The time after which a session can be evicted. A session that was unused for this long makes
room for any other session. A session that has existed for this long makes room for a larger one.
So short-lived consumers cannot evict the sessions of long-lived ones.
"""


def _random_id() -> int:
    return 1 + secrets.randbelow(2**31 - 1)


class FetchSessionCache:
    """The cache of fetch sessions.

    A session that was unused for ``forget_after_ms`` is forgotten even if its room is not needed:
    its idle connection was closed, so nobody continues it. -1 means that sessions are never
    forgotten in this way.
    """

    def __init__(
        self,
        slots: int,
        now_ms: Callable[[], int],
        *,
        forget_after_ms: int = -1,
        new_id: Callable[[], int] = _random_id,
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._forget_after_ms = forget_after_ms
        self._new_id = new_id
        self._by_id: dict[int, FetchSession] = {}
        """The sessions in the order of their last use."""
        self.evictions = 0

    @classmethod
    def of(cls, config: Values, now_ms: Callable[[], int]) -> "FetchSessionCache":
        """Return the cache that the configuration describes."""
        slots = config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]
        return cls(slots, now_ms, forget_after_ms=config[CONNECTIONS_MAX_IDLE_MS])

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, owner: SessionOwner, partitions: int) -> FetchSession | None:
        """Return a new session for that number of partitions. Return None if there is no room,
        or nothing to fetch.
        """
        if not partitions or not self._make_room(partitions):
            return None
        session_id = self._new_id()
        while session_id in self._by_id:
            session_id = self._new_id()
        session = FetchSession(session_id, owner, self._now_ms())
        self._by_id[session_id] = session
        return session

    def find(self, session_id: int, owner: SessionOwner) -> FetchSession | None:
        """Return the owner's session with this id, or None if there is none. The session counts
        as used now.
        """
        session = self._by_id.get(session_id)
        if session is None or session.owner != owner:
            return None
        session.used_ms = self._now_ms()
        del self._by_id[session_id]
        self._by_id[session_id] = session
        return session

    def close(self, session: FetchSession) -> None:
        if self._by_id.get(session.id) is session:
            del self._by_id[session.id]
        session.close()

    def samples(self) -> Iterator[Sample]:
        yield Sample(SESSIONS, len(self._by_id))
        yield Sample(PARTITIONS, sum(map(len, self._by_id.values())))
        yield Sample(EVICTIONS, self.evictions)

    def _make_room(self, partitions: int) -> bool:
        """Make room for a session with that number of partitions, and return whether there is a
        slot.
        """
        self._forget_unused()
        if len(self._by_id) < self._slots:
            return True
        if not self._by_id:
            return False
        now_ms = self._now_ms()
        evicted = next(iter(self._by_id.values()))
        if now_ms - evicted.used_ms <= EVICTION_MS:
            settled = (s for s in self._by_id.values() if now_ms - s.created_ms >= EVICTION_MS)
            smallest = min(settled, key=len, default=None)
            if smallest is None or len(smallest) >= partitions:
                return False
            evicted = smallest
        self.close(evicted)
        self.evictions += 1
        return True

    def _forget_unused(self) -> None:
        if self._forget_after_ms < 0:
            return
        oldest_ms = self._now_ms() - self._forget_after_ms
        while self._by_id:
            session = next(iter(self._by_id.values()))
            if session.used_ms >= oldest_ms:
                return
            self.close(session)
