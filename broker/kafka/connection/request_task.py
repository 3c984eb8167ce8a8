"""Carries out a request without the passes of the event loop that an ``asyncio.Task`` takes.

A task begins in the next pass of the loop, and those who wait for it hear of its end in the one
after. Most Produce and Fetch requests take less time than these passes. A ``RequestTask`` begins
at once, like an eager task of Python 3.12, and tells of its end at once.

It has no place among the tasks of asyncio: ``asyncio.current_task`` is None in what it carries out,
which therefore must not use ``asyncio.timeout`` or ``asyncio.wait_for``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias

from quorate.broker.kafka.wire.primitives import Buffers

OnDone: TypeAlias = Callable[[Any], object]


class Work(Protocol):
    """A request that is being carried out: an ``asyncio.Task`` or a ``RequestTask``."""

    def done(self) -> bool: ...
    def result(self) -> Buffers: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def cancel(self) -> bool: ...
    def add_done_callback(self, on_done: OnDone, /) -> None: ...


class RequestTask:
    """A coroutine that is carried out as far as it goes without waiting, and then goes on whenever
    what it waits for is done. It waits for futures only.
    """

    __slots__ = (
        "_awaited",
        "_coroutine",
        "_error",
        "_is_cancelled",
        "_is_done",
        "_on_done",
        "_result",
    )

    def __init__(self, coroutine: Coroutine[Any, Any, Buffers]) -> None:
        self._coroutine: Final = coroutine
        self._awaited: asyncio.Future[Any] | None = None
        self._on_done: list[OnDone] = []
        self._result: Buffers = []
        self._error: Exception | None = None
        self._is_cancelled = False
        self._is_done = False
        self._go_on()

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Buffers:
        """Return the result of the coroutine, which must be done.

        Raises:
            Exception: what the coroutine raised.
            asyncio.CancelledError: it was cancelled.
        """
        if self._error is not None:
            raise self._error
        if self._is_cancelled:
            raise asyncio.CancelledError
        return self._result

    def cancel(self) -> bool:
        """Have what the coroutine waits for raise ``CancelledError`` in it."""
        return self._awaited is not None and self._awaited.cancel()

    def add_done_callback(self, on_done: OnDone) -> None:
        """Call ``on_done`` with this task at its end, which has not come yet."""
        self._on_done.append(on_done)

    def _go_on(self, _: object = None) -> None:
        self._awaited = None
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as end:
            self._result = end.value
        except asyncio.CancelledError:
            self._is_cancelled = True
        except Exception as error:  # noqa: BLE001 - told by ``result``
            # Without this frame, which holds the task, which holds the error.
            self._error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        else:
            self._wait_for(awaited)
            return
        self._is_done = True
        for on_done in self._on_done:
            on_done(self)

    def _wait_for(self, awaited: Any) -> None:  # noqa: ANN401 - a future, or None
        if awaited is None:
            # The coroutine lets others have a pass of the loop, by ``asyncio.sleep(0)``.
            asyncio.get_running_loop().call_soon(self._go_on)
            return
        # Whoever awaits a future sets this, and whoever drives a coroutine takes note by clearing
        # it: a future that was yielded without ``await`` would be a mistake.
        awaited._asyncio_future_blocking = False
        self._awaited = awaited
        awaited.add_done_callback(self._go_on)
