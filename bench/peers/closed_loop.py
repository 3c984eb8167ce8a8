"""Closed loops: a number of writes in flight, each followed by the next as it is acknowledged."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

_STUCK_S: Final = 30.0

Done = Callable[[BaseException | None], None]


async def await_writes(
    write: Callable[[int], Awaitable[object]], seconds: float, in_flight: int
) -> list[float]:
    """``in_flight`` tasks that each await ``write(number)``; latencies in ms.

    Raises:
        ExceptionGroup: a write failed.
    """
    latencies_ms: list[float] = []
    numbers = iter(range(1 << 62))
    deadline = time.perf_counter() + seconds

    async def writer() -> None:
        while (started := time.perf_counter()) < deadline:
            await write(next(numbers))
            latencies_ms.append((time.perf_counter() - started) * 1000)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(writer())
    return latencies_ms


def call_back_writes(
    start_write: Callable[[int, Done], None], seconds: float, in_flight: int
) -> list[float]:
    """The same for a library that calls back, on a thread of its own.

    Raises:
        Exception: the first failure of a write.
        TimeoutError: a write is never acknowledged.
    """
    latencies_ms: list[float] = []
    failures: list[BaseException] = []
    numbers = iter(range(1 << 62))
    finished = threading.Semaphore(0)
    deadline = time.perf_counter() + seconds

    def start_next() -> None:
        started = time.perf_counter()
        if started >= deadline or failures:
            finished.release()
            return

        def done(failure: BaseException | None) -> None:
            if failure is None:
                latencies_ms.append((time.perf_counter() - started) * 1000)
            else:
                failures.append(failure)
            start_next()

        start_write(next(numbers), done)

    for _ in range(in_flight):
        start_next()
    for _ in range(in_flight):
        if not finished.acquire(timeout=seconds + _STUCK_S):
            raise TimeoutError(f"a write is not acknowledged after {_STUCK_S:g} s")
    if failures:
        raise failures[0]
    return latencies_ms
