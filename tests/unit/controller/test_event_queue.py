"""The controller's events."""

import asyncio

import pytest

from broker.controller.event_queue import EventQueue, LeftOffice, Priority


async def test_c17_broker_events_go_ahead_of_admin_requests() -> None:
    done: list[str] = []
    events = EventQueue(on_fault=lambda: None)

    def work(name: str) -> object:
        async def run() -> None:
            await asyncio.sleep(0)
            done.append(name)

        return run

    for name in ("a1", "a2"):
        events.put(Priority.ADMIN, work(name))  # type: ignore[arg-type]
    for name in ("b1", "b2"):
        events.put(Priority.BROKERS, work(name))  # type: ignore[arg-type]
    assert len(events) == 4
    events.start()
    await asyncio.sleep(1)
    assert done == ["b1", "b2", "a1", "a2"]
    await events.close()


async def test_e4_closing_stops_the_work_and_tells_who_waits() -> None:
    events = EventQueue(on_fault=lambda: None)
    events.start()

    async def never() -> None:
        await asyncio.Event().wait()

    under_way = asyncio.create_task(events.run(Priority.ADMIN, never))
    queued = asyncio.create_task(events.run(Priority.ADMIN, never))
    await asyncio.sleep(1)
    await events.close()
    for task in (under_way, queued):
        with pytest.raises(LeftOffice):
            await task
    with pytest.raises(LeftOffice):
        await events.run(Priority.ADMIN, never)


async def test_c17_one_failure_does_not_stop_the_queue() -> None:
    events = EventQueue(on_fault=lambda: None)
    events.start()

    async def fail() -> None:
        raise ValueError("one bad request")

    async def succeed() -> int:
        return 7

    with pytest.raises(ValueError, match="one bad request"):
        await events.run(Priority.ADMIN, fail)
    assert await events.run(Priority.ADMIN, succeed) == 7
    await events.close()


async def test_e4_work_that_fails_with_nobody_waiting_is_a_fault() -> None:
    faults: list[str] = []
    events = EventQueue(on_fault=lambda: faults.append("told"))
    events.start()

    async def fail() -> None:
        raise ValueError("a mistake of ours")

    events.put(Priority.BROKERS, fail)
    await asyncio.sleep(1)
    assert faults == ["told"]
    await events.close()


async def test_c17_who_stops_waiting_does_not_stop_the_work() -> None:
    events = EventQueue(on_fault=lambda: None)
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(1)
        done.set()

    events.start()
    waiting = asyncio.create_task(events.run(Priority.ADMIN, work))
    await asyncio.sleep(0.5)
    waiting.cancel()
    await done.wait()
    await events.close()
