"""When an event loop that stood still ends a tenure (E4)."""

import asyncio

import pytest

from broker.controller.watchdog import Watchdog, stood_still


@pytest.mark.parametrize(("gap_ms", "still"), [(0, False), (5_999, False), (6_000, True)])
def test_e4_a_gap_of_the_sessions_length_counts(gap_ms: int, still: bool) -> None:
    assert stood_still(100.0, 100.0 + gap_ms / 1000, 6_000) is still


async def test_e4_a_loop_that_runs_is_never_taken_for_dead() -> None:
    told: list[str] = []
    watchdog = Watchdog(limit_ms=6_000, on_stall=lambda: told.append("stalled"))
    watchdog.start()
    await asyncio.sleep(100)
    assert watchdog.may_act()
    assert not told
    watchdog.close()


async def test_e4_a_stall_is_told_once_and_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    watchdog = Watchdog(limit_ms=6_000, on_stall=lambda: told.append("stalled"))
    watchdog.start()
    await asyncio.sleep(2)
    loop = asyncio.get_running_loop()
    now_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6)
    assert not watchdog.may_act(), "asked before the next beat has come"
    await asyncio.sleep(100)
    assert not watchdog.may_act()
    assert told == ["stalled"]
    watchdog.close()


async def test_e4_the_next_beat_notices_a_stall_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    watchdog = Watchdog(limit_ms=6_000, on_stall=lambda: told.append("stalled"))
    watchdog.start()
    loop = asyncio.get_running_loop()
    now_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6)
    await asyncio.sleep(2)
    assert told == ["stalled"]
    watchdog.close()
