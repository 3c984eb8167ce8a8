"""How tests wait, and that they wait in no other way."""

import asyncio
import re
from pathlib import Path

import pytest

from quorate.client.errors import QuorateError
from tests.support.waiting import async_wait_until, wait_until

TESTS = Path(__file__).parents[1]
HELPERS = {"support/waiting.py", "support/virtual_time.py"}
IN_SPARK = {"support/gated_query.py", "support/spark_driver.py", "spark/programs/held_up.py"}
"""They have functions that run in Spark's own processes, far from these helpers."""
LOADS = {
    "support/flapping/aio.py",
    "support/flapping/altered/changes.py",
    "queues/campaign.py",
    "clients/applications/connect.py",
    "clients/applications/kills.py",
    "clients/applications/streams.py",
    "queues/workers.py",
    "support/login_flood.py",
    "tables/campaign.py",
}
"""They keep to a rate, to the speed of a link, or to moments of kills by chance: that is what they
are for."""
SIMULATED = "sim/"
"""Everything there runs on the simulator's own time."""
SLEEPS = re.compile(r"\b(?:time|asyncio)\.sleep\((?!0\))[^\n]*")
"""A pause of zero seconds is none: it gives other tasks their turn."""


def test_the_first_true_answer_ends_the_wait() -> None:
    answers = iter([0, None, "", "so", "later"])
    assert wait_until(lambda: next(answers), "an answer") == "so"
    assert next(answers) == "later"


def test_an_error_of_a_client_is_no_answer() -> None:
    tries = iter([1, 2])

    def second() -> bool:
        if next(tries) == 1:
            raise QuorateError("nobody is there")
        return True

    assert wait_until(second, "an answer")


def test_a_wait_in_vain_tells_what_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.05 s in vain for a miracle"):
        wait_until(lambda: False, "a miracle", timeout_s=0.05)
    tried: list[int] = []
    with pytest.raises(AssertionError, match=r"a miracle, after \d+ tries"):
        wait_until(
            lambda: tried.append(1), lambda: f"a miracle, after {len(tried)} tries", timeout_s=0.05
        )


async def test_a_coroutine_that_hangs_does_not_hold_up_the_deadline() -> None:
    async def hang() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(AssertionError, match="in vain for an event"):
        await async_wait_until(hang, "an event", timeout_s=0.05)


async def test_a_timeout_of_the_condition_itself_is_passed_on() -> None:
    async def give_up() -> bool:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        await async_wait_until(give_up, "an answer")


async def test_others_go_on_while_a_task_waits() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await async_wait_until(event.is_set, "the event")


def test_nobody_sleeps_elsewhere() -> None:
    found = {
        name: calls
        for file in TESTS.rglob("*.py")
        if (name := str(file.relative_to(TESTS))) not in HELPERS | IN_SPARK | LOADS
        and not name.startswith(SIMULATED)
        and (calls := SLEEPS.findall(file.read_text(encoding="utf-8")))
    }
    assert found == {}
