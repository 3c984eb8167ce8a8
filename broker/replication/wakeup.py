"""``Wakeup``: one task sleeps until others have something for it."""

import asyncio


class Wakeup:
    """One task sleeps, others wake it. A wake-up before the sleep is not lost."""

    __slots__ = ("_future", "_set")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._set = False

    def wake(self) -> None:
        """Wake the task, now or when it goes to sleep next. Several calls wake it once."""
        self._set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s``, and forget the wake-up."""
        if not self._set:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(max(0.0, timeout_s), self.wake)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        self._set = False
