"""The controller's events: broker failures ahead of admin requests, one at a time.

Work is handled to its end before the next begins, so every decision sees the image that the one
before it made. A flood of topic creations delays an election by one piece of work at most: requests
are queued in pieces.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, TypeVar

from broker.controller import on_behalf

log = logging.getLogger(__name__)

T = TypeVar("T")

Work = Callable[[], Awaitable[None]]


class Priority(IntEnum):
    """Which events go first; within one priority, in order of arrival."""

    BROKERS = 0
    ADMIN = 1


class LeftOffice(Exception):
    """This controller is no longer in office: ask the one that is (NOT_CONTROLLER)."""


class EventQueue:
    """Two queues and the one task that works them off.

    ``on_fault`` is told when work fails that nobody waits for: its decision is not made, so another
    controller had better try.
    """

    def __init__(self, on_fault: Callable[[], None]) -> None:
        self._on_fault = on_fault
        self._waiting: dict[Priority, deque[Work]] = {priority: deque() for priority in Priority}
        self._wake = asyncio.Event()
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        """In the order in which they asked: a set has another one in each run."""
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Events queued (Q9)."""
        return sum(map(len, self._waiting.values()))

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="controller-events")

    async def close(self) -> None:
        """Stop at once. Whoever waits for an event is told ``LeftOffice``."""
        self._closed = True
        for waiting in self._unanswered:
            if not waiting.done():
                waiting.set_exception(LeftOffice())
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, priority: Priority, work: Work) -> None:
        """Queue ``work``, which deals with its own errors."""
        if not self._closed:
            self._waiting[priority].append(work)
            self._wake.set()

    async def run(self, priority: Priority, work: Callable[[], Awaitable[T]]) -> T:
        """Queue ``work`` and wait for its result. It is done for whom the caller acts.

        A caller that stops waiting does not stop the work.

        Raises:
            LeftOffice: the controller left office before the work was done.
            Exception: what ``work`` raised.
        """
        if self._closed:
            raise LeftOffice
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        asked = on_behalf.current()

        async def work_and_answer() -> None:
            try:
                with on_behalf.acting(asked):
                    result = await work()
            except Exception as error:  # noqa: BLE001 - handed to the one who waits
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._unanswered[answer] = None
        self.put(priority, work_and_answer)
        try:
            return await answer
        finally:
            self._unanswered.pop(answer, None)

    async def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await work()
            except Exception:
                log.exception("the controller could not handle an event and gives up its office")
                self._on_fault()

    def _next(self) -> Work | None:
        for priority in Priority:
            if self._waiting[priority]:
                return self._waiting[priority].popleft()
        return None
