"""Turns for long work, so that no request stops the event loop for others.

A request over many items is carried out in slices. All such requests together have one slice in
each pass of the event loop, and whoever has waited longest goes on in the next one. So a small
request beside them waits for one slice in each pass that it needs, however many large requests
there are.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Final, TypeVar

SLICE_S: Final = 0.001
"""The length of a slice. Between two looks at the clock there are only a few items, so a slice
takes little longer. A small request needs several passes of the loop, so with 2 ms a producer waits
twice as long beside large requests, and with less the passes cost more than the work.
"""

ITEMS_BETWEEN_LOOKS: Final = 4
"""Few, because an item with a name of 32 KB takes long."""

T = TypeVar("T")


class TurnQueue:
    """A queue of tasks that wait for their turn of the event loop, in the order in which they
    came."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The turns that are waited for, the one that comes next at the front."""

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def join(self) -> asyncio.Future[None]:
        """Return what is done when it is the caller's turn."""
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        return turn

    def wake_next(self) -> bool:
        """Give a turn to whoever has waited longest, and return whether there is one. Those who
        were cancelled wait no more.
        """
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class WorkTurns:
    """The turns of the long work of one event loop."""

    def __init__(
        self, clock_s: Callable[[], float] = time.perf_counter, slice_s: float = SLICE_S
    ) -> None:
        self._clock_s = clock_s
        self._slice_s = slice_s
        self._ends_s = float("-inf")
        self._next_is_due = False
        self._waiting = TurnQueue()

    @property
    def is_over(self) -> bool:
        """True if long work must ``wait`` before it goes on."""
        return self._clock_s() >= self._ends_s

    async def wait(self) -> None:
        """Return when others have had their turn: small requests, and work that has waited
        longer.
        """
        turn = self._waiting.join()
        self._next_soon()
        await turn
        self._ends_s = self._clock_s() + self._slice_s

    async def give_way(self) -> None:
        """Wait if the slice is over. Long work calls this between its items."""
        if self.is_over:
            await self.wait()

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items, and give way between them. Few items are yielded without a look at the
        clock.

        Whatever ``items`` iterates over must not change until the end: it may change between two
        slices.
        """
        for place, item in enumerate(items, start=1):
            yield item
            if not place % ITEMS_BETWEEN_LOOKS and self.is_over:
                await self.wait()

    async def carry_out(self, steps: Generator[None, None, T]) -> T:
        """Carry out work in steps, and give way between them. Return its result."""
        try:
            while True:
                next(steps)
                if self.is_over:
                    await self.wait()
        except StopIteration as end:
            result: T = end.value
            return result

    def _next_soon(self) -> None:
        if not self._next_is_due:
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._next_is_due = False
        self._waiting.wake_next()
        if self._waiting:
            self._next_soon()
