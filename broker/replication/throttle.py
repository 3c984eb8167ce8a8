"""Replication throttles: how fast replicas that are being moved are copied (C11, KIP-73).

Only replicas that are named are throttled, and only while they are not in sync: what holds up the
high watermark is never slowed down. A broker has one throttle for what it takes as a follower and
one for what it sends as a leader.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from metadata_log.types import TopicPartition

UNLIMITED: Final = (1 << 63) - 1

BURST_MS: Final = 1_000
"""After a pause so much time's worth may go through at once."""

RECHECK_MS: Final = 1_000
"""Who has to wait longer asks again after this: the rate may have changed."""


class Throttle:
    """A token bucket over the bytes of throttled replicas; it may go into debt by one answer.

    ``rate``: bytes per second, read anew each time since it is a dynamic configuration. ``covers``:
    whether this broker's replica of a partition is named.
    """

    def __init__(self, rate: Callable[[], int], covers: Callable[[TopicPartition], bool]) -> None:
        self._rate = rate
        self._covers = covers
        self._tokens = 0.0
        self._filled_ms: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate: without one nothing is throttled, and nobody has to be looked
        up. The same for all of a frame."""
        return self._rate() < UNLIMITED

    def covers(self, tp: TopicPartition) -> bool:
        """Whether the replica of ``tp`` is throttled, as long as it is not in sync."""
        return self.is_limited and self._covers(tp)

    def take(self, size: int, now_ms: int) -> None:
        """``size`` bytes of a throttled replica went through."""
        self._fill(now_ms)
        self._tokens -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long throttled replicas have to wait; 0: not at all."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        rate = self._rate()
        return min(RECHECK_MS, 1 + int(-self._tokens * 1_000 / rate)) if rate else RECHECK_MS

    def _fill(self, now_ms: int) -> None:
        rate = self._rate()
        if self._filled_ms is None or rate >= UNLIMITED:
            self._tokens = 0.0
        else:
            passed_ms = now_ms - self._filled_ms
            most = rate * BURST_MS / 1_000
            self._tokens = min(most, self._tokens + passed_ms * rate / 1_000)
        self._filled_ms = now_ms


class Throttles(NamedTuple):
    """What a broker sends as a leader, and takes as a follower."""

    leader: Throttle
    follower: Throttle


def unthrottled() -> Throttles:
    """Let everything through."""
    leader, follower = (Throttle(lambda: UNLIMITED, lambda _: False) for _ in range(2))
    return Throttles(leader, follower)
