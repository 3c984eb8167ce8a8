"""The threads that hash passwords for one listener, and the logins that wait for them.

Hashing a password costs milliseconds. A client that has not authenticated can send many of them, so
they never use the event loop or the threads that other work waits for. Each listener has threads
and a queue of its own, and the queue is fair between addresses.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

from quorate.broker.security.fair_queue import FairQueue
from quorate.common.network_address import network_of

T = TypeVar("T")

THREADS: Final = 2


class TooManyLogins(Exception):
    """So many logins wait that this one is turned away. Its password was not looked at."""


class LoginQueue:
    """Runs the verification of passwords on threads, a bounded number of them at once."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or ThreadPoolExecutor(THREADS, thread_name_prefix="password")
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._running = 0
        self.refused = 0
        """The number of logins that were turned away."""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def run(self, address: str, user: str, verify: Callable[[], T]) -> T:
        """Return the result of ``verify``, which runs on a thread when it is the turn of this
        address and user.

        Raises:
            TooManyLogins: too many logins of this address wait, or of all addresses.
        """
        if self._running >= THREADS:
            await self._wait(network_of(address), user)
        else:
            self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, verify)
        finally:
            self._give_turn()

    async def _wait(self, address: str, user: str) -> None:
        """Return once it is the turn of this login. The turn is counted in ``_running``."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        dropped = self._queue.put(address, user, turn)
        if dropped is not None and not dropped.done():
            self.refused += 1
            dropped.set_exception(TooManyLogins("too many logins wait"))
        try:
            await turn
        except asyncio.CancelledError:
            self._queue.remove(address, user, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_turn()
            raise

    def _give_turn(self) -> None:
        """Let the next login run that has not been abandoned meanwhile."""
        while self._queue:
            turn = self._queue.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
