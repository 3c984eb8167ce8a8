"""The requests of a connection begin in their order, whoever carries them out."""

import asyncio
from functools import partial

from quorate.broker.kafka.connection.connection_limits import ConnectionLimits
from quorate.broker.kafka.connection.request_task import RequestTask
from quorate.broker.kafka.connection.requests import Request
from quorate.broker.kafka.connection.response_queue import RequestsInFlight
from quorate.broker.kafka.wire.primitives import Buffers
from quorate.broker.quota.client_memory import RequestAccount, RequestMemory

HELD_BYTES = 10


class Requests:
    """Requests that note when they begin, on one connection."""

    def __init__(self) -> None:
        self.account = RequestAccount(RequestMemory(), lambda: None)
        limits = ConnectionLimits(frame_bytes=1 << 20)
        self.running = RequestsInFlight(limits, self.account, lambda _: None)
        self.begun: list[str] = []

    def start(self, name: str, *, at_once: bool) -> bool:
        run = partial(self._run, name)
        request = Request(
            api_name=name,
            correlation_id=0,
            cost_bytes=0,
            abandonable=True,
            flexible_response_header=False,
            run=run,
            begin=(lambda: RequestTask(run())) if at_once else None,
        )
        self.account.hold(HELD_BYTES)
        return self.running.start(request, HELD_BYTES)

    async def _run(self, name: str) -> Buffers:
        self.begun.append(name)
        return []


async def test_a_request_that_may_begin_at_once_does() -> None:
    requests = Requests()
    assert requests.start("first", at_once=True)
    assert requests.start("second", at_once=True)
    assert requests.begun == ["first", "second"]


async def test_none_overtakes_a_task_of_asyncio_that_has_not_begun() -> None:
    requests = Requests()
    assert not requests.start("first", at_once=False)
    assert not requests.start("second", at_once=True)
    assert requests.begun == []
    await asyncio.sleep(0)
    assert requests.begun == ["first", "second"]


async def test_when_the_task_is_answered_others_begin_at_once_again() -> None:
    requests = Requests()
    requests.start("first", at_once=False)
    await asyncio.sleep(0)
    assert requests.running.take_finished() is not None
    assert requests.start("second", at_once=True)


async def test_who_has_gone_holds_nothing_of_requests_that_were_done_at_once() -> None:
    requests = Requests()
    assert requests.start("first", at_once=True)
    requests.start("second", at_once=False)
    assert requests.account.held_bytes == 2 * HELD_BYTES
    requests.running.abandon()
    assert requests.account.held_bytes == HELD_BYTES
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert requests.account.held_bytes == 0
