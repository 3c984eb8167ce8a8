"""An asyncio event loop per process, run by the simulation when it has something to do."""

import asyncio
import contextlib
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

MOST_STEPS: Final = 10_000


class _NothingToSelect:
    def select(self, timeout: float | None) -> list[Any]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Timers and callbacks alone: no descriptors, no threads. Its clock is the host's."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        super().__init__()
        self._clock = clock
        self._wake = wake
        self._selector = _NothingToSelect()
        self.is_dead = False
        self.failures: list[str] = []
        self.set_exception_handler(self._on_failure)

    def time(self) -> float:
        return self._clock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this loop the running one for what is called inside."""
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)

    def abandon(self) -> None:
        """The process is gone: nothing of it runs any more, not even to clean up after itself."""
        self.is_dead = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if isinstance(coroutine, Coroutine):
                with contextlib.suppress(RuntimeError):
                    coroutine.close()

    def __del__(self) -> None:
        """There is nothing to close."""

    def run_what_is_due(self) -> None:
        """Everything that is ready, and what becomes ready by it."""
        with self.running():
            for _ in range(MOST_STEPS):
                due = self.next_timer()
                if not self._ready and (due is None or due > self._clock()):  # type: ignore[attr-defined]
                    return
                self._run_once()  # type: ignore[attr-defined]
        raise AssertionError("an event loop goes round and round without time passing")

    def next_timer(self) -> float | None:
        """When the next timer is due, on this loop's clock; cancelled ones count until then."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return float(scheduled[0].when()) if scheduled else None

    # -- what BaseEventLoop leaves to its kind ---------------------------------------------------

    def _write_to_self(self) -> None:
        if not self.is_dead:
            self._wake()

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _on_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")
