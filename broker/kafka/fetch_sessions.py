"""All fetch sessions of a broker: so many, and the rules by which one makes room (KIP-227)."""

import secrets
from collections.abc import Callable, Iterator
from typing import Final

from broker.config.fetching import MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS
from broker.config.listeners import CONNECTIONS_MAX_IDLE_MS
from broker.kafka.fetch_session import FetchSession, SessionOwner
from metadata_log.configuration import Values
from quorum.metrics.family import Family, Kind, Sample

SESSIONS: Final = Family(
    "quorate_fetch_sessions",
    Kind.GAUGE,
    "FetchSessionCache",
    "NumIncrementalFetchSessions",
    "Fetch sessions of consumers.",
)
PARTITIONS: Final = Family(
    "quorate_fetch_session_partitions",
    Kind.GAUGE,
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    "Partitions in fetch sessions, counted once in each.",
)
EVICTIONS: Final = Family(
    "quorate_fetch_session_evictions_total",
    Kind.COUNTER,
    "FetchSessionCache",
    "IncrementalFetchSessionEvictionsPerSec",
    "Fetch sessions that ended to make room for another; with many, raise "
    "max.incremental.fetch.session.cache.slots.",
)

EVICTION_MS: Final = 120_000
"""A session that was unused for so long makes room for any other, one that has existed for so long
for a larger one: whoever comes and goes cannot drive out those who stay."""


def _random_id() -> int:
    return 1 + secrets.randbelow(2**31 - 1)


class FetchSessions:
    """``forget_after_ms``: an unused session is forgotten though nobody needs its room: its
    connection was closed for that, so nobody goes on with it. -1: never."""

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
        """In the order of their last use."""
        self.evictions = 0

    @classmethod
    def of(cls, config: Values, now_ms: Callable[[], int]) -> "FetchSessions":
        """As configured."""
        slots = config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]
        return cls(slots, now_ms, forget_after_ms=config[CONNECTIONS_MAX_IDLE_MS])

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, owner: SessionOwner, partitions: int) -> FetchSession | None:
        """A session for so many partitions; None: there is no room, or nothing to fetch."""
        if not partitions or not self._make_room(partitions):
            return None
        session_id = self._new_id()
        while session_id in self._by_id:
            session_id = self._new_id()
        session = FetchSession(session_id, owner, self._now_ms())
        self._by_id[session_id] = session
        return session

    def find(self, session_id: int, owner: SessionOwner) -> FetchSession | None:
        """The owner's session of this id, which counts as used now."""
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
        """Whether there is a slot for a session of so many partitions."""
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
