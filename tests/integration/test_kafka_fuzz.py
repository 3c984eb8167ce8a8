"""The fuzz of the Kafka listener with a large budget: a quarter of a million damaged requests."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.kafka.test_fuzz import at_once, run_all, serving, talk
from tests.unit.kafka.test_sasl import guarded_broker

__all__ = ["at_once"]  # a fixture
T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


def run(talking: Coroutine[Any, Any, T]) -> T:
    """On virtual time; what long polls left waiting goes with the loop."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(talking)
    finally:
        loop.close()


@pytest.mark.parametrize("seed", range(5))
def test_no_request_of_very_many_brings_a_handler_down(tmp_path: Path, seed: int) -> None:
    ended = run(run_all(serving(tmp_path), seed, times=400))
    assert sum(ended.values()) > 40_000
    assert all(ended.values()), ended


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(5))
def test_no_stranger_of_very_many_gets_in(tmp_path: Path, seed: int) -> None:
    async def talking() -> int:
        inside, door = guarded_broker(tmp_path)
        return await talk(inside, door, seed, 10_000)

    assert run(talking()) > 20_000
