"""Large reads for clients, one after the other, with the loop's other work in between."""

import asyncio
import itertools

from quorate.broker.replication.serving.read_turns import ReadTurns


async def read(turns: ReadTurns, name: str, sizes: list[int], seen: list[str]) -> None:
    for size in sizes:
        if turns.is_over:
            await turns.wait()
        seen.append(name)
        turns.took(size)


async def test_many_large_reads_let_others_have_a_turn_between_any_two() -> None:
    turns = ReadTurns(10)
    seen: list[str] = []

    async def other() -> None:
        while len(seen) < 40:
            seen.append("-")
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(read(turns, name, [10, 25], seen)) for name in "abcd"]
    await asyncio.gather(*tasks, other())
    reads = "".join(seen).rstrip("-")
    assert sorted(reads.replace("-", "")) == sorted("abcd" * 2)
    assert not any(first != "-" and second != "-" for first, second in itertools.pairwise(reads))


async def test_small_reads_do_not_wait() -> None:
    turns = ReadTurns(10)
    seen: list[str] = []
    await read(turns, "a", [3, 3, 3], seen)
    assert not turns.is_over
    assert seen == ["a"] * 3


async def test_one_that_gave_up_waiting_does_not_hold_up_the_next() -> None:
    turns = ReadTurns(10)
    seen: list[str] = []
    first, second = (asyncio.ensure_future(read(turns, name, [10], seen)) for name in "ab")
    turns.took(10)
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert seen == ["b"]
    assert first.cancelled()
