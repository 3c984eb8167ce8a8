"""Requests to one broker that carry the items collected in one turn of the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from quorate.common.types import BrokerId

log: Final = logging.getLogger(__name__)

ITEMS_MAX: Final = 1_000
"""The largest number of items in one request."""
IN_FLIGHT_MAX: Final = 4
"""The number of concurrent requests to one broker. With more than one, a slow item delays only the
items of its own request. With not many more, waiting items share a request."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class SharedRequests(Generic[Item, Outcome]):
    """Shares requests of one kind to one broker."""

    def __init__(
        self, ask: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]], failed: Outcome
    ) -> None:
        """``ask`` returns the outcome of each item, such as an error code. ``failed`` is that of
        all items if it raises.
        """
        self._ask = ask
        self._failed = failed
        self._gathered: list[tuple[Item, asyncio.Future[Outcome]]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_due = False

    def add(self, item: Item) -> "asyncio.Future[Outcome]":
        """Ask for an item; the future gives its outcome. A future that is cancelled early is not
        sent."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._gathered.append((item, outcome))
        self._look()
        return outcome

    def close(self) -> None:
        """Cancel all waiting futures and requests."""
        for _, outcome in self._gathered:
            outcome.cancel()
        self._gathered.clear()
        for task in self._tasks:
            task.cancel()

    def _look(self) -> None:
        if self._gathered and not self._is_due and len(self._tasks) < IN_FLIGHT_MAX:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        wanted = [entry for entry in self._gathered if not entry[1].done()]
        now, self._gathered = wanted[:ITEMS_MAX], wanted[ITEMS_MAX:]
        if now:
            task = asyncio.get_running_loop().create_task(self._carry_out(now))
            self._tasks[task] = None
            task.add_done_callback(self._ended)
        self._look()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        self._look()

    async def _carry_out(self, entries: "Sequence[tuple[Item, asyncio.Future[Outcome]]]") -> None:
        try:
            found = await self._ask([item for item, _ in entries])
            outcomes = list(zip(entries, found, strict=True))
        except asyncio.CancelledError:
            for _, outcome in entries:
                outcome.cancel()
            raise
        except Exception:
            log.exception("a request of %d items failed", len(entries))
            outcomes = [(entry, self._failed) for entry in entries]
        for (_, outcome), result in outcomes:
            if not outcome.done():
                outcome.set_result(result)


class RequestsByBroker(Generic[Item, Outcome]):
    """Shares requests of one kind to each of many brokers."""

    def __init__(
        self,
        ask: Callable[[BrokerId, Sequence[Item]], Awaitable[Sequence[Outcome]]],
        failed: Outcome,
    ) -> None:
        """``ask`` and ``failed`` are those of ``SharedRequests``, for the broker that is named."""
        self._ask = ask
        self._failed = failed
        self._of: dict[BrokerId, SharedRequests[Item, Outcome]] = {}

    def add(self, broker_id: BrokerId, item: Item) -> "asyncio.Future[Outcome]":
        """Ask the broker for an item, as ``SharedRequests.add`` does."""
        requests = self._of.get(broker_id)
        if requests is None:
            requests = SharedRequests(partial(self._ask, broker_id), self._failed)
            self._of[broker_id] = requests
        return requests.add(item)

    def close(self) -> None:
        """Cancel all waiting futures and requests."""
        for requests in self._of.values():
            requests.close()
