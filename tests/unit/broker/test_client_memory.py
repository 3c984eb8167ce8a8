"""What clients hold is counted, refused beyond the bound, and told to who waits."""

import asyncio
import random

import pytest

from quorate.broker.quota.client_memory import (
    RequestAccount,
    RequestMemory,
    ResponseLease,
    ResponseMemory,
)


class Taker:
    """A connection that wants ``wanted`` bytes for a large frame, ten at a time."""

    def __init__(self, memory: RequestMemory, wanted: int) -> None:
        self.account = RequestAccount(memory, self.go_on)
        self.left = wanted

    def go_on(self) -> None:
        while self.left and self.account.take(10):
            self.left -= 10
            if not self.left:
                self.account.whole()


def test_what_is_taken_is_bounded_but_for_one_frame() -> None:
    memory = RequestMemory(100)
    takers = [Taker(memory, 80) for _ in range(3)]
    for taker in takers:
        taker.go_on()
    assert [taker.left for taker in takers] == [0, 0, 80]
    assert memory.held_bytes == 160
    takers[1].account.release(80)
    assert takers[2].left == 0
    assert memory.held_bytes == 160


def test_only_one_goes_beyond_the_limit_at_a_time() -> None:
    memory = RequestMemory(100)
    first, second, third = (RequestAccount(memory, lambda: None) for _ in range(3))
    assert first.take(100)
    assert second.take(50)
    assert not third.take(10)
    assert not first.take(10)
    second.whole()
    assert second.take(50)
    assert memory.held_bytes == 200
    assert memory.is_waited_for


def test_who_waits_is_told_in_order_once_there_is_room() -> None:
    memory = RequestMemory(100)
    told: list[str] = []
    holder = RequestAccount(memory, lambda: None)
    beyond = RequestAccount(memory, lambda: None)
    assert holder.take(100)
    assert beyond.take(10)
    accounts = {}
    for name in "abc":
        accounts[name] = RequestAccount(memory, lambda name=name: told.append(name))  # type: ignore[misc]
        assert not accounts[name].take(10)
    holder.release(5)
    assert told == []
    holder.release(60)
    assert told == ["a", "b", "c"]
    assert not memory.is_waited_for


def test_each_that_is_told_takes_before_the_next_is() -> None:
    memory = RequestMemory(100)
    holder, beyond = (RequestAccount(memory, lambda: None) for _ in range(2))
    assert holder.take(100)
    assert beyond.take(10)
    waiting = [Taker(memory, 50) for _ in range(3)]
    for taker in waiting:
        taker.go_on()
    holder.release(40)
    assert [taker.left for taker in waiting] == [20, 50, 50]
    assert memory.held_bytes == 100


def test_a_frame_beyond_the_limit_that_is_given_up_lets_the_next_one_go_on() -> None:
    memory = RequestMemory(100)
    holder, beyond = (RequestAccount(memory, lambda: None) for _ in range(2))
    assert holder.take(100)
    assert beyond.take(10)
    waiting = Taker(memory, 50)
    waiting.go_on()
    beyond.leave()
    assert waiting.left == 0


def test_one_that_went_beyond_the_limit_and_left_holds_on_until_its_work_is_done() -> None:
    memory = RequestMemory(100)
    holder, beyond = (RequestAccount(memory, lambda: None) for _ in range(2))
    assert holder.take(100)
    assert beyond.take(10)
    beyond.whole()
    waiting = Taker(memory, 50)
    waiting.go_on()
    beyond.leave()
    assert waiting.left == 50
    beyond.release(10)
    assert waiting.left == 0


def test_one_that_waits_and_leaves_is_not_told() -> None:
    memory = RequestMemory(10)
    told: list[str] = []
    holder = RequestAccount(memory, lambda: None)
    waiting = RequestAccount(memory, lambda: told.append("waiting"))
    holder.hold(20)
    memory.wait(waiting)
    waiting.leave()
    holder.release(20)
    assert told == []


def test_who_reads_more_is_told_only_once_there_is_room() -> None:
    memory = RequestMemory(100)
    told: list[str] = []
    holder = RequestAccount(memory, lambda: None)
    waiting = RequestAccount(memory, lambda: told.append("more"))
    holder.hold(150)
    memory.wait(waiting)
    holder.release(50)
    assert told == []
    holder.release(1)
    assert told == ["more"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_all_frames_end_and_nothing_stays_held(seed: int) -> None:
    chance = random.Random(seed)
    memory = RequestMemory(1_000)
    takers = [Taker(memory, chance.randrange(10, 900, 10)) for _ in range(30)]
    sizes = {taker: taker.left for taker in takers}
    for taker in takers:
        taker.go_on()
        assert memory.held_bytes <= 1_000 + 890
    held = list(takers)
    while held:
        ready = [taker for taker in held if not taker.left]
        assert ready, "all wait for one another"
        done = chance.choice(ready)
        held.remove(done)
        done.account.release(sizes[done])
        assert memory.held_bytes <= 1_000 + 890
    assert memory.held_bytes == 0
    assert not memory.is_waited_for


def test_a_lease_counts_what_it_keeps_and_gives_back_the_rest() -> None:
    memory = ResponseMemory(100)
    first, second = ResponseLease(memory), ResponseLease(memory)
    assert first.reserve(70) == 50
    assert second.reserve(70) == 25
    first.keep(20)
    assert second.reserve(30) == 30
    assert memory.room_bytes == 50
    first.keep(0)
    second.keep(0)
    assert memory.held_bytes == 0


def test_an_answer_may_be_larger_than_what_was_reserved() -> None:
    memory = ResponseMemory(100)
    lease = ResponseLease(memory)
    assert lease.reserve(200) == 50
    lease.keep(150)
    assert memory.room_bytes == 0
    assert ResponseLease(memory).reserve(1) == 0


def test_many_that_reserve_leave_something_to_the_next_one() -> None:
    memory = ResponseMemory(1_000)
    leases = [ResponseLease(memory) for _ in range(9)]
    shares = [lease.reserve(1_000) for lease in leases]
    assert shares == [500, 250, 125, 63, 31, 16, 8, 4, 2]
    assert memory.room_bytes == 1


async def test_who_waits_for_room_is_woken_by_it() -> None:
    memory = ResponseMemory(100)
    assert await memory.wait_for_room(5_000) == 5_000
    memory.change(100)
    waiting = asyncio.ensure_future(memory.wait_for_room(60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert memory.is_waited_for
    memory.change(-1)
    assert 50_000 < await waiting <= 60_000
    assert not memory.is_waited_for


async def test_who_waits_for_room_in_vain_has_no_time_left() -> None:
    memory = ResponseMemory(100)
    memory.change(100)
    assert await memory.wait_for_room(1) == 0
    assert not memory.is_waited_for
