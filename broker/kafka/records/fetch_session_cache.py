"""The fetch sessions of a broker. Their number and their partitions are limited, and rules decide
which one is evicted (KIP-227).
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

CACHED_PARTITIONS_MAX: Final = 500_000
"""The most partitions of all sessions together. Each takes about 460 bytes. Without this limit it
would be the number of slots times the size of a request. A client that gets no session for this
reason names its partitions in each request.
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
        partitions_max: int = CACHED_PARTITIONS_MAX,
        new_id: Callable[[], int] = _random_id,
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._forget_after_ms = forget_after_ms
        self._partitions_max = partitions_max
        self._new_id = new_id
        self._by_id: dict[int, FetchSession] = {}
        """The sessions in the order of their last use."""
        self._partitions = 0
        self.evictions = 0

    @classmethod
    def of(cls, config: Values, now_ms: Callable[[], int]) -> "FetchSessionCache":
        """Return the cache that the configuration describes."""
        slots = config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]
        return cls(slots, now_ms, forget_after_ms=config[CONNECTIONS_MAX_IDLE_MS])

    def __len__(self) -> int:
        return len(self._by_id)

    def open(
        self, owner: SessionOwner, partitions: int, *, uses_topic_ids: bool = False
    ) -> FetchSession | None:
        """Return a new session for that number of partitions. Return None if there is no room,
        or nothing to fetch.
        """
        if not partitions or not self._make_room(partitions):
            return None
        session_id = self._new_id()
        while session_id in self._by_id:
            session_id = self._new_id()
        session = FetchSession(session_id, owner, self._now_ms(), uses_topic_ids=uses_topic_ids)
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

    def has_room_for(self, session: FetchSession) -> bool:
        """Count the partitions that the session has now, and return whether there is room for
        them.
        """
        self._partitions += len(session) - session.counted
        session.counted = len(session)
        return self._partitions <= self._partitions_max

    def close(self, session: FetchSession) -> None:
        if self._by_id.get(session.id) is session:
            del self._by_id[session.id]
            self._partitions -= session.counted
        session.close()

    def samples(self) -> Iterator[Sample]:
        yield Sample(SESSIONS, len(self._by_id))
        yield Sample(PARTITIONS, self._partitions)
        yield Sample(EVICTIONS, self.evictions)

    def _make_room(self, partitions: int) -> bool:
        """Make room for a session with that number of partitions, and return whether there is
        any.
        """
        self._forget_unused()
        if partitions > self._partitions_max:
            return False
        while self._partitions + partitions > self._partitions_max:
            oldest = next(iter(self._by_id.values()))
            if not self._is_unused(oldest):
                return False
            self._evict(oldest)
        return len(self._by_id) < self._slots or self._make_slot(partitions)

    def _make_slot(self, partitions: int) -> bool:
        """Evict one session for another with that number of partitions, if one may be."""
        if not self._by_id:
            return False
        evicted = next(iter(self._by_id.values()))
        if not self._is_unused(evicted):
            now_ms = self._now_ms()
            settled = (s for s in self._by_id.values() if now_ms - s.created_ms >= EVICTION_MS)
            smallest = min(settled, key=len, default=None)
            if smallest is None or len(smallest) >= partitions:
                return False
            evicted = smallest
        self._evict(evicted)
        return True

    def _is_unused(self, session: FetchSession) -> bool:
        return self._now_ms() - session.used_ms > EVICTION_MS

    def _evict(self, session: FetchSession) -> None:
        self.close(session)
        self.evictions += 1

    def _forget_unused(self) -> None:
        if self._forget_after_ms < 0:
            return
        oldest_ms = self._now_ms() - self._forget_after_ms
        while self._by_id:
            session = next(iter(self._by_id.values()))
            if session.used_ms >= oldest_ms:
                return
            self.close(session)
