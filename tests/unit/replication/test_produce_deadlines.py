"""Produce requests of all timeouts expire by one timer, each when it is due."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quorate.broker.replication.api import ProduceOutcome
from quorate.broker.replication.hosting.delayed_produce import DelayedProduce, ProduceDeadlines
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import VirtualTimeLoop, pass_time


def open_request(deadlines: ProduceDeadlines, timeout_ms: int) -> DelayedProduce:
    pending = DelayedProduce()
    pending.outcomes.append(ProduceOutcome(base_offset=7))
    pending.expect()
    pending.expire_after(timeout_ms, deadlines)
    return pending


def test_each_expires_when_it_is_due_and_not_before() -> None:
    async def run() -> None:
        deadlines = ProduceDeadlines()
        late, soon, later = (open_request(deadlines, ms) for ms in (3_000, 1_000, 3_500))
        await pass_time(0.5)
        second = open_request(deadlines, 1_000)
        states = []
        for _ in range(4):
            await pass_time(0.75)
            states.append([one.done for one in (soon, second, late, later)])
        assert states == [
            [True, False, False, False],
            [True, True, False, False],
            [True, True, False, False],
            [True, True, True, True],
        ]
        assert soon.outcomes[0].error_code == errors_pb2.REQUEST_TIMED_OUT
        assert soon.outcomes[0].was_appended

    in_virtual_time(run)


def test_what_is_done_in_time_does_not_expire() -> None:
    async def run() -> None:
        deadlines = ProduceDeadlines()
        in_time, too_late = (open_request(deadlines, 1_000) for _ in range(2))
        in_time.settle(0, errors_pb2.NONE, None)
        assert (await in_time.wait())[0].base_offset == 7
        assert (await too_late.wait())[0].error_code == errors_pb2.REQUEST_TIMED_OUT
        assert in_time.outcomes[0].error_code == errors_pb2.NONE

    in_virtual_time(run)


def in_virtual_time(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
