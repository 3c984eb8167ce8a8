"""One timer for the deadlines of all calls: every one is met, on virtual time."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from quorate.common.types import SessionId
from quorate.metadata_log.records import FeatureLevel, Operation, TransactionResult
from quorate.quorum.client.pending_transactions import (
    DeadlineTimer,
    PendingTransaction,
    PendingTransactions,
)
from tests.support.virtual_time import VirtualTimeLoop, pass_time


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test())  # type: ignore[arg-type]  # a coroutine function


def test_each_deadline_is_met_whatever_the_order_they_come_in() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        waiting = [5.0, 2.0, 9.0, 2.5]
        met: list[float] = []

        def on_due(now_s: float) -> float:
            met.extend(each for each in waiting if each <= now_s)
            waiting[:] = [each for each in waiting if each > now_s]
            return min(waiting, default=math.inf)

        timer = DeadlineTimer(on_due)
        for deadline_s in waiting:
            timer.add(deadline_s)
        for until_s in (2.1, 5.1, 9.1):
            await pass_time(until_s - loop.time())
            assert met == sorted(each for each in (2.0, 2.5, 5.0, 9.0) if each <= until_s)

    on_virtual_time(test)


def test_a_cancelled_timer_never_comes() -> None:
    async def test() -> None:
        came: list[float] = []

        def on_due(now_s: float) -> float:
            came.append(now_s)
            return math.inf

        timer = DeadlineTimer(on_due)
        timer.add(1.0)
        timer.cancel()
        await pass_time(2)
        assert came == []
        timer.add(3.0)
        await pass_time(2)
        assert came == [3.0]

    on_virtual_time(test)


def test_only_what_is_overdue_and_has_no_result_expires() -> None:
    async def test() -> None:
        transactions = PendingTransactions()

        def add(timeout_ms: int) -> PendingTransaction:
            future: asyncio.Future[TransactionResult] = asyncio.Future()
            operation = Operation(records=(FeatureLevel(name="f", level=1),))
            return transactions.add(
                SessionId(b"s" * 16),
                (operation,),
                atomic=True,
                timestamp_ms=5,
                future=future,
                timeout_ms=timeout_ms,
            )

        early, late, done = add(1_000), add(3_000), add(1_000)
        done.future.cancel()
        assert transactions.expire(0.5, lambda _pending: TimeoutError()) == 1.0
        assert transactions.expire(1.0, lambda each: TimeoutError(each.sequence)) == 3.0
        assert isinstance(early.future.exception(), TimeoutError)
        assert not late.future.done()

    on_virtual_time(test)
