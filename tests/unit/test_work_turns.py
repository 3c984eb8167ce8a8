"""Long work of all requests together has one slice in each pass of the event loop."""

import asyncio
from collections import Counter

from quorate.broker.quota.work_turns import ITEMS_BETWEEN_LOOKS, WorkTurns


class Clock:
    """A clock that each item of work moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Passes:
    """Counts the passes of the event loop while it is open."""

    def __init__(self) -> None:
        self.count = 0
        self._open = True

    def __enter__(self) -> "Passes":
        self._pass()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False

    def _pass(self) -> None:
        self.count += 1
        if self._open:
            asyncio.get_running_loop().call_soon(self._pass)


async def test_all_long_work_together_has_one_slice_in_each_pass_of_the_loop() -> None:
    clock = Clock()
    turns = WorkTurns(clock, slice_s=0.002)
    in_pass: Counter[int] = Counter()
    done: list[str] = []

    async def work(name: str) -> None:
        await turns.give_way()
        for _ in range(50):
            clock.now_s += 0.001
            in_pass[passes.count] += 1
            await turns.give_way()
        done.append(name)

    with Passes() as passes:
        await asyncio.gather(*map(work, "abcd"))
    assert sum(in_pass.values()) == 200
    assert max(in_pass.values()) == 2, "a slice is two items long, whoever they belong to"
    assert sorted(done) == ["a", "b", "c", "d"]


async def test_work_that_has_waited_longest_goes_on() -> None:
    clock = Clock()
    turns = WorkTurns(clock, slice_s=0.002)
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            await turns.wait()
            order.append(name)
            clock.now_s += 1

    await asyncio.gather(work("a"), work("b"))
    assert order == ["a", "b"] * 3


async def test_few_items_never_wait() -> None:
    turns = WorkTurns(Clock())
    with Passes() as passes:
        items = [item async for item in turns.through(range(ITEMS_BETWEEN_LOOKS - 1))]
    assert items == [*range(ITEMS_BETWEEN_LOOKS - 1)]
    assert passes.count == 1


async def test_many_items_give_way() -> None:
    clock = Clock()
    turns = WorkTurns(clock, slice_s=0.002)
    with Passes() as passes:
        async for _ in turns.through(range(10 * ITEMS_BETWEEN_LOOKS)):
            clock.now_s += 0.001
    assert passes.count > 10


async def test_whoever_stops_waiting_holds_up_nobody() -> None:
    turns = WorkTurns(Clock())
    gone, stays = (asyncio.ensure_future(turns.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(stays, 1)
