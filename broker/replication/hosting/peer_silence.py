"""The silence of other brokers: the time since they were heard over their replication streams.

A stream is never quiet for long while it works: a follower asks again as soon as its long poll is
answered, at the end of ``replica.fetch.wait.max.ms`` at the latest, also where all partitions are
idle. So silence is evidence that the link or the other broker is broken, long before a follower
lags. There are two kinds of it: a *follower* that fetches from this broker does not ask, and a
*leader* that this broker fetches from does not answer. It has no side effects; times are those of a
monotonic clock.
"""

from collections.abc import Callable, Set
from typing import Final

from quorate.common.types import BrokerId

CHECKS_PER_LIMIT: Final = 20
"""The checks in the time for which a peer may be silent."""

PAUSE_DIVISOR: Final = 2
"""More than this part of that time between two checks shows that this process itself stood still.
What it has not heard meanwhile proves nothing about others."""


LEFT_FOR_MS: Final = 2_000
"""A leader that is asked again so soon after nothing was wanted from it still owes what it owed: a
new leader epoch of the same leader begins a new stream."""


class PeerSilence:
    """Remembers when each follower was heard last, and since when each leader owes an answer."""

    def __init__(self) -> None:
        self._heard_ms: dict[BrokerId, int] = {}
        self._silent: dict[BrokerId, int] = {}
        """Silent followers, and when they were heard last."""
        self._asked_ms: dict[BrokerId, int] = {}
        self._left: dict[BrokerId, tuple[int, int]] = {}
        """Leaders that nothing is wanted from: since when they owed an answer, and until when."""
        self._checked_ms: int | None = None

    # -- followers -------------------------------------------------------------------------------

    @property
    def silent_followers(self) -> Set[BrokerId]:
        """The followers that have been silent for too long."""
        return self._silent.keys()

    def expect_follower(self, follower: BrokerId, now_ms: int) -> None:
        """Expect to hear from a follower: it was told to fetch a partition from here."""
        if follower not in self._silent:
            self._heard_ms[follower] = now_ms

    def hear_follower(self, follower: BrokerId, now_ms: int) -> bool:
        """Note a frame or a question of a follower. Return whether it had been silent."""
        self._heard_ms[follower] = now_ms
        return self._silent.pop(follower, None) is not None

    def excuse_follower(self, follower: BrokerId) -> None:
        """Expect nothing of a follower that has taken back all its positions: a throttle may hold
        it back for long."""
        self._heard_ms.pop(follower, None)

    # -- leaders ---------------------------------------------------------------------------------

    def ask_leader(self, leader: BrokerId, now_ms: int) -> None:
        """Note that a leader owes this broker a connection or an answer."""
        asked_ms, left_ms = self._left.pop(leader, (now_ms, now_ms))
        since_ms = asked_ms if now_ms - left_ms <= LEFT_FOR_MS else now_ms
        self._asked_ms.setdefault(leader, since_ms)

    def hear_leader(self, leader: BrokerId) -> None:
        """Note an answer of a leader."""
        self._asked_ms.pop(leader, None)
        self._left.pop(leader, None)

    def leave_leader(self, leader: BrokerId, now_ms: int) -> None:
        """Note that nothing is wanted from a leader any more."""
        asked_ms = self._asked_ms.pop(leader, None)
        if asked_ms is not None:
            self._left[leader] = asked_ms, now_ms

    # -- evidence --------------------------------------------------------------------------------

    def check(
        self, now_ms: int, silence_max_ms: int, expected: Callable[[], Set[BrokerId]]
    ) -> list[BrokerId]:
        """Return the followers that have become silent since the last check.

        ``expected`` returns the followers of the partitions that are led here. It is only asked
        where a follower seems silent, because it takes time in proportion to the partitions.
        """
        pause_max_ms = silence_max_ms // PAUSE_DIVISOR
        if self._checked_ms is not None and now_ms - self._checked_ms > pause_max_ms:
            self._begin_anew(now_ms)
        self._checked_ms = now_ms
        overdue = [
            follower
            for follower, heard_ms in self._heard_ms.items()
            if now_ms - heard_ms > silence_max_ms
        ]
        if not overdue:
            return []
        followers = expected()
        newly = []
        for follower in overdue:
            if follower not in followers:
                del self._heard_ms[follower]
                self._silent.pop(follower, None)
            elif follower not in self._silent:
                self._silent[follower] = self._heard_ms[follower]
                newly.append(follower)
        return newly

    def silent_peers(self, now_ms: int, silence_max_ms: int) -> dict[BrokerId, int]:
        """Return the brokers that are silent for too long, and the time when they began to be."""
        found = dict(self._silent)
        for leader, asked_ms in self._asked_ms.items():
            if now_ms - asked_ms > silence_max_ms:
                found[leader] = min(asked_ms, found.get(leader, asked_ms))
        return found

    def _begin_anew(self, now_ms: int) -> None:
        """Give every peer that is not known to be silent the whole time again."""
        for follower in self._heard_ms.keys() - self._silent.keys():
            self._heard_ms[follower] = now_ms
        for leader in self._asked_ms:
            self._asked_ms[leader] = now_ms
        self._left.clear()
