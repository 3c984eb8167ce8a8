"""A long poll over many partitions, in which a partition without news costs nothing.

A position is looked at when it is new or was moved, when something happened to its partition, or
where there was more than was read. Whoever answers the reader says the last with ``keep``. News
that come while a position is looked at are kept for the next look.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from quorate.broker.replication.api import FetchPartition
from quorate.broker.replication.wakeup import Wakeup


class FetchWaiter(Protocol):
    """Someone who waits for news of a partition: a ``FetchPosition`` or a ``Wakeup``."""

    def wake(self) -> None:
        """Note that something happened to the partition."""


FetchWaiters = dict[FetchWaiter, None]
"""The waiters of one partition, in the order in which they came."""


class FetchPosition:
    """A reader's place in one partition.

    ``reported`` holds the offsets of the partition in the last response to its reader. It is None
    before the first response.
    """

    __slots__ = ("_fetch", "_waiters", "reported", "want")

    def __init__(self, fetch: "DelayedFetch", want: FetchPartition) -> None:
        self.want = want
        self.reported: tuple[int, ...] | None = None
        self._fetch: Final = fetch
        self._waiters: FetchWaiters | None = None

    def wake(self) -> None:
        """Look at this position next: there is news of its partition."""
        self._fetch.has_news_of(self)

    def watch(self, waiters: FetchWaiters | None) -> None:
        """Wait among the ``waiters`` of a partition, and of no other one.

        None stands for a partition that is not here: wait for nothing.
        """
        if waiters is not self._waiters and not self._fetch.is_closed:
            self.leave()
            if waiters is not None:
                waiters[self] = None
                self._waiters = waiters

    def move(self, want: FetchPartition) -> None:
        """Go on elsewhere."""
        self.want = want

    def leave(self) -> None:
        """Wait for no partition any more."""
        if self._waiters is not None:
            self._waiters.pop(self, None)
            self._waiters = None


class DelayedFetch:
    """The positions of one reader that are to be looked at, longest waiting first.

    One look at a time. ``wakeup`` belongs to whoever waits for news, if anybody does.
    """

    __slots__ = ("is_closed", "news", "wakeup")

    def __init__(self) -> None:
        self.news: dict[FetchPosition, None] = {}
        self.wakeup: Wakeup | None = None
        self.is_closed = False

    def add(self, want: FetchPartition) -> FetchPosition:
        """Add one more position, which is news."""
        position = FetchPosition(self, want)
        self.news[position] = None
        return position

    def move(self, position: FetchPosition, want: FetchPartition) -> None:
        """Have the reader go on elsewhere, which is news."""
        position.move(want)
        self.news[position] = None

    def remove(self, position: FetchPosition) -> None:
        """Look at the position no more."""
        position.leave()
        self.news.pop(position, None)

    def has_news_of(self, position: FetchPosition) -> None:
        """Look at the position next, and wake whoever waits."""
        self.news[position] = None
        if self.wakeup is not None:
            self.wakeup.wake()

    def begin_wait(self) -> Wakeup:
        """Return the wake-up of the fetch that begins now."""
        self.wakeup = Wakeup()
        return self.wakeup

    def end_wait(self) -> None:
        """Note that nobody waits any more."""
        self.wakeup = None

    def take_news(self) -> dict[FetchPosition, None]:
        """Return the positions that are to be looked at now."""
        news, self.news = self.news, {}
        return news

    def keep(self, first: Iterable[FetchPosition], last: Iterable[FetchPosition] = ()) -> None:
        """Look at these again next time: before those with news, and after them."""
        self.news = dict.fromkeys(first) | self.news | dict.fromkeys(last)

    def close(self, positions: Iterable[FetchPosition]) -> None:
        """Wait no more for any of ``positions``, which are all there are; whoever waits stops."""
        self.is_closed = True
        for position in positions:
            position.leave()
        self.news.clear()
        if self.wakeup is not None:
            self.wakeup.wake()
