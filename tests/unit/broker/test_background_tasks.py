"""Work that goes on beside whoever began it."""

import asyncio
import gc
import weakref

from quorate.common.background_tasks import BackgroundTasks


async def test_work_begins_in_the_order_in_which_it_was_started() -> None:
    tasks = BackgroundTasks()
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)

    for number in range(3):
        tasks.start(work(number))
    await asyncio.sleep(0)
    assert begun == [0, 1, 2]


async def test_work_that_nobody_refers_to_is_kept() -> None:
    tasks = BackgroundTasks()
    waits_for: list[weakref.ref[asyncio.Future[None]]] = []

    async def work() -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits_for.append(weakref.ref(waiting))
        await waiting

    tasks.start(work())
    await asyncio.sleep(0)
    gc.collect()
    assert waits_for[0]() is not None
    await tasks.close()


async def until_cancelled(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        ended.append("cleaned up")


async def test_all_have_ended_when_closed() -> None:
    tasks = BackgroundTasks()
    ended: list[str] = []
    tasks.start(until_cancelled(ended))
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == ["cleaned up"]


async def test_cancelling_waits_for_nobody() -> None:
    tasks = BackgroundTasks()
    ended: list[str] = []
    tasks.start(until_cancelled(ended))
    await asyncio.sleep(0)
    tasks.cancel()
    assert ended == []
    for _ in range(2):
        await asyncio.sleep(0)
    assert ended == ["cleaned up"]


async def test_what_goes_on_can_be_waited_for() -> None:
    tasks = BackgroundTasks()
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("by itself")

    tasks.start(work())
    await tasks.ended()
    assert done == ["by itself"]
