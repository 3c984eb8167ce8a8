"""What is added to a queue in parts waits for room, and others get in between (issue 17)."""

import asyncio
from collections import deque

from quorate.broker.quota.room_turns import RoomTurns

ROOM = 4


class Line:
    """A queue whose first items are done now and then."""

    def __init__(self) -> None:
        self.items: deque[str] = deque()
        self.longest = 0
        self.turns = RoomTurns(lambda: len(self.items) <= ROOM)

    def add(self, *items: str) -> None:
        self.items.extend(items)
        self.longest = max(self.longest, len(self.items))

    def finish(self, count: int) -> list[str]:
        done = [self.items.popleft() for _ in range(min(count, len(self.items)))]
        self.turns.go_on()
        return done

    async def add_in_parts(self, name: str, parts: int) -> None:
        for _ in range(parts):
            await self.turns.wait()
            self.add(name, name)


async def passes(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_small_request_is_never_behind_all_parts_of_large_ones() -> None:
    line = Line()
    large = [asyncio.ensure_future(line.add_in_parts(name, 100)) for name in "abcde"]
    for _ in range(10):
        await passes()
        line.add("small")
        assert line.items.index("small") <= ROOM + 2
        assert "small" in line.finish(ROOM + 3)
    while any(not one.done() for one in large):
        await passes()
        line.finish(5)
    assert line.longest <= ROOM + 3
    await asyncio.gather(*large)


async def test_large_requests_take_turns() -> None:
    line = Line()
    large = [asyncio.ensure_future(line.add_in_parts(name, 30)) for name in "abc"]
    done: list[str] = []
    while any(not one.done() for one in large):
        await passes()
        done += line.finish(2)
    ahead = [done[:count].count("a") - done[:count].count("c") for count in range(20, len(done))]
    assert max(map(abs, ahead)) <= ROOM + 4, "one is not done before another begins"


async def test_who_waits_while_there_is_room_does_not_wait() -> None:
    turns = RoomTurns(lambda: True)
    waiting = asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    assert waiting.done()


async def test_who_comes_when_there_is_room_again_is_behind_who_has_waited() -> None:
    line = Line()
    line.add(*"x" * (ROOM + 1))
    order: list[str] = []

    async def wait(name: str) -> None:
        await line.turns.wait()
        order.append(name)

    before = [asyncio.ensure_future(wait(name)) for name in ("first", "second")]
    await passes()
    line.finish(ROOM)
    await asyncio.gather(*before, wait("later"))
    assert order == ["first", "second", "later"]


async def test_whoever_stops_waiting_holds_up_nobody() -> None:
    line = Line()
    line.add(*"x" * (ROOM + 1))
    gone, stays = (asyncio.ensure_future(line.turns.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    line.finish(1)
    await asyncio.wait_for(stays, 1)
