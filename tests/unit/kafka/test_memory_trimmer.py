"""Memory is returned after a burst of responses, not within one."""

import asyncio

import pytest

from quorate.broker.kafka.connection.memory_pressure import (
    TRIM_CHECK_INTERVAL_S,
    WORTH_BYTES,
    MemoryTrimmer,
)
from quorate.broker.quota.client_memory import ResponseMemory
from tests.support.virtual_time import pass_time


class Watched:
    """A memory whose trims are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "run_in_executor", lambda _, trim: trim())
        self.memory = ResponseMemory()
        self.trims = 0
        self.trimming = MemoryTrimmer(self.memory, self._trim)
        self.trimming.start()

    def _trim(self) -> None:
        self.trims += 1

    async def answers(self, size: int, intervals: int) -> None:
        """Hold responses of ``size`` bytes in all, again and again."""
        for _ in range(intervals):
            self.memory.change(size)
            self.memory.change(-size)
            await pass_time(TRIM_CHECK_INTERVAL_S)


async def test_once_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    await watched.answers(WORTH_BYTES, 3)
    assert watched.trims == 0
    await watched.answers(1_000, 5)
    assert watched.trims == 1


async def test_not_while_the_answers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for _ in range(5):
        await watched.answers(WORTH_BYTES, 1)
        await watched.answers(WORTH_BYTES // 2, 1)
    assert watched.trims == 0


async def test_not_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    await watched.answers(WORTH_BYTES - 1, 1)
    await watched.answers(0, 5)
    assert watched.trims == 0
