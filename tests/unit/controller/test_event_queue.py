"""The controller's events."""

import asyncio

import pytest

from quorate.broker.controller.event_metrics import event_samples
from quorate.broker.controller.tenure import EventPriority, EventQueue, TenureEnded
from quorate.common.metrics.family import Distribution
from tests.support.virtual_time import pass_time


async def test_c17_broker_events_and_elections_go_ahead_of_admin_requests() -> None:
    done: list[str] = []
    events = EventQueue(on_fault=lambda: None)

    def work(name: str) -> object:
        async def run() -> None:
            await asyncio.sleep(0)
            done.append(name)

        return run

    for name in ("a1", "a2"):
        events.put(EventPriority.ADMIN, work(name))  # type: ignore[arg-type]
    events.put(EventPriority.ELECTIONS, work("e1"))  # type: ignore[arg-type]
    for name in ("b1", "b2"):
        events.put(EventPriority.BROKERS, work(name))  # type: ignore[arg-type]
    assert len(events) == 5
    events.start()
    await pass_time(1)
    assert done == ["b1", "b2", "e1", "a1", "a2"]
    await events.close()


async def test_e4_closing_stops_the_work_and_tells_who_waits() -> None:
    events = EventQueue(on_fault=lambda: None)
    events.start()

    async def never() -> None:
        await asyncio.Event().wait()

    under_way = asyncio.create_task(events.run(EventPriority.ADMIN, never))
    queued = asyncio.create_task(events.run(EventPriority.ADMIN, never))
    await pass_time(1)
    await events.close()
    for task in (under_way, queued):
        with pytest.raises(TenureEnded):
            await task
    with pytest.raises(TenureEnded):
        await events.run(EventPriority.ADMIN, never)


async def test_c17_one_failure_does_not_stop_the_queue() -> None:
    events = EventQueue(on_fault=lambda: None)
    events.start()

    async def fail() -> None:
        raise ValueError("one bad request")

    async def succeed() -> int:
        return 7

    with pytest.raises(ValueError, match="one bad request"):
        await events.run(EventPriority.ADMIN, fail)
    assert await events.run(EventPriority.ADMIN, succeed) == 7
    await events.close()


async def test_e4_work_that_fails_with_nobody_waiting_is_a_fault() -> None:
    faults: list[str] = []
    events = EventQueue(on_fault=lambda: faults.append("told"))
    events.start()

    async def fail() -> None:
        raise ValueError("a mistake of ours")

    events.put(EventPriority.BROKERS, fail)
    await pass_time(1)
    assert faults == ["told"]
    await events.close()


async def test_c17_who_stops_waiting_does_not_stop_the_work() -> None:
    events = EventQueue(on_fault=lambda: None)
    done = asyncio.Event()

    async def work() -> None:
        await pass_time(1)
        done.set()

    events.start()
    waiting = asyncio.create_task(events.run(EventPriority.ADMIN, work))
    await pass_time(0.5)
    waiting.cancel()
    await done.wait()
    await events.close()


async def test_q9_the_times_that_events_wait_and_take_are_counted_by_priority() -> None:
    events = EventQueue(on_fault=lambda: None)

    async def one_second() -> None:
        await pass_time(1)

    for priority in (EventPriority.ADMIN, EventPriority.ADMIN, EventPriority.BROKERS):
        events.put(priority, one_second)
    events.start()
    await pass_time(10)
    told = {(one.family.kafka_name, *one.labels): one.value for one in event_samples(events)}
    assert told.pop(("EventQueueSize",)) == 0
    sums = {key: value.sum for key, value in told.items() if isinstance(value, Distribution)}
    assert sums == {
        ("EventQueueTimeMs", "brokers"): 0,
        ("EventQueueProcessingTimeMs", "brokers"): 1,
        ("EventQueueTimeMs", "elections"): 0,
        ("EventQueueProcessingTimeMs", "elections"): 0,
        ("EventQueueTimeMs", "admin"): 1 + 2,
        ("EventQueueProcessingTimeMs", "admin"): 2,
    }
    await events.close()
