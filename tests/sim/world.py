"""Virtual time, one stream of chance, and the trace: what makes a run repeat itself exactly.

Everything that happens is an event at a time. An actor (a voter's raft thread, its event loop, its
snapshot writer) runs at once when its event comes, and may use up time while it does: a slow fsync
moves ``actor_time`` and so what the actor does next, but nobody else's present.
"""

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

TRACE_KEPT: Final = 400


class Violation(AssertionError):
    """A promise of the quorum was broken: the reason for all of this."""


class SimulatedCrash(BaseException):
    """The process ended at this very instruction. Not an Exception: nobody may handle it."""


class World:
    """The event queue. ``now`` is true time in seconds, which no voter can read."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.actor_time = 0.0
        """The time that the running actor has reached, in seconds. It is never before ``now``."""
        self.read_clock: Callable[[], float] = _no_clock
        """The clock of the running actor's host."""
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._trace: deque[str] = deque(maxlen=TRACE_KEPT)
        self._digest = hashlib.blake2b(digest_size=16)
        self._echo = echo

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Run ``action`` at ``when``; those of one moment in the order of these calls."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(when, self.now), self._scheduled, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run_until(self, end: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let things happen until ``end`` or until ``done``; whether it is done."""
        while self._queue and self._queue[0][0] <= end:
            if done():
                return True
            self.now, _, action = heapq.heappop(self._queue)
            self.actor_time = self.now
            self.events += 1
            action()
        if not done():
            self.now = max(self.now, end)
            return False
        return True

    # -- chance ----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.random.random()

    # -- trace -----------------------------------------------------------------------------------

    def note(self, line: str) -> None:
        """One line of the trace; what decides whether two runs were the same."""
        line = f"{self.now:11.6f} {line}"
        self._digest.update(line.encode())
        self._trace.append(line)
        if self._echo is not None:
            self._echo(line)

    @property
    def trace_digest(self) -> str:
        return self._digest.hexdigest()

    def last_lines(self, count: int) -> list[str]:
        return list(self._trace)[-count:]


def _no_clock() -> float:
    raise AssertionError("the clock was read outside of every actor")
