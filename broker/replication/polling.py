"""What one reader polls, again and again: a partition without news costs it nothing.

A position is looked at when it is new or was moved, when something happened to its partition, or
where there was more than was read; whoever answers the reader says so with ``keep``. News that come
while a position is looked at are kept for the next look.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from broker.replication.api import FetchWant
from broker.replication.waiters import Wakeup


class Waiter(Protocol):
    """Who waits for news of a partition."""

    def wake(self) -> None:
        """Something happened to it."""


Waiters = dict[Waiter, None]
"""Of one partition, in the order in which they came."""


class Position:
    """A reader's place in one partition. ``told``: what its reader was told of the partition's
    offsets; None: nothing yet."""

    __slots__ = ("_poll", "_waiters", "told", "want")

    def __init__(self, poll: "Poll", want: FetchWant) -> None:
        self.want = want
        self.told: tuple[int, ...] | None = None
        self._poll: Final = poll
        self._waiters: Waiters | None = None

    def wake(self) -> None:
        """There is news of its partition: it is looked at next."""
        poll = self._poll
        poll.news[self] = None
        if poll.wakeup is not None:
            poll.wakeup.wake()

    def watch(self, waiters: Waiters | None) -> None:
        """Have news of the partition whose ``waiters`` these are, and of no other; None: of none,
        there is no such partition here."""
        if waiters is not self._waiters and not self._poll.is_closed:
            self.leave()
            if waiters is not None:
                waiters[self] = None
                self._waiters = waiters

    def leave(self) -> None:
        """Have no news any more."""
        if self._waiters is not None:
            self._waiters.pop(self, None)
            self._waiters = None


class Poll:
    """The positions of one reader that are to be looked at, those first that have waited longest.

    One look at a time. ``wakeup``: of who waits for news.
    """

    __slots__ = ("is_closed", "news", "wakeup")

    def __init__(self) -> None:
        self.news: dict[Position, None] = {}
        self.wakeup: Wakeup | None = None
        self.is_closed = False

    def add(self, want: FetchWant) -> Position:
        """One more position, which is news."""
        position = Position(self, want)
        self.news[position] = None
        return position

    def move(self, position: Position, want: FetchWant) -> None:
        """The reader goes on elsewhere: that is news."""
        position.want = want
        self.news[position] = None

    def remove(self, position: Position) -> None:
        """It is not looked at any more."""
        position.leave()
        self.news.pop(position, None)

    def take_news(self) -> dict[Position, None]:
        """What is to be looked at now."""
        news, self.news = self.news, {}
        return news

    def keep(self, first: Iterable[Position], last: Iterable[Position] = ()) -> None:
        """Look at these again next time: before those with news, and after them."""
        self.news = dict.fromkeys(first) | self.news | dict.fromkeys(last)

    def close(self, positions: Iterable[Position]) -> None:
        """Have no news of any of ``positions``, which are all there are; whoever waits stops."""
        self.is_closed = True
        for position in positions:
            position.leave()
        self.news.clear()
        if self.wakeup is not None:
            self.wakeup.wake()
