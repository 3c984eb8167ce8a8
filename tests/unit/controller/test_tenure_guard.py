"""When an event loop that stood still ends a tenure (E4)."""

import asyncio

import pytest

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import TenureGuard, stood_still
from quorate.common.types import BrokerId, ControllerEpoch
from tests.support.virtual_time import pass_time

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


@pytest.mark.parametrize(("gap_ms", "still"), [(0, False), (5_999, False), (6_000, True)])
def test_e4_a_gap_of_the_sessions_length_counts(gap_ms: int, still: bool) -> None:
    assert stood_still(100.0, 100.0 + gap_ms / 1000, 6_000) is still


async def test_e4_a_loop_that_runs_is_never_taken_for_dead() -> None:
    told: list[ControllerEpoch] = []
    guard = TenureGuard(TENURE, session_timeout_ms=6_000, on_end=told.append)
    guard.start()
    await pass_time(100)
    assert guard.may_act()
    assert not told
    guard.close()


async def test_e4_a_stall_is_told_once_and_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[ControllerEpoch] = []
    guard = TenureGuard(TENURE, session_timeout_ms=6_000, on_end=told.append)
    guard.start()
    await pass_time(2)
    loop = asyncio.get_running_loop()
    now_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6)
    assert not guard.may_act(), "asked before the next beat has come"
    await pass_time(100)
    assert not guard.may_act()
    assert told == [1]
    guard.close()


async def test_e4_the_next_beat_notices_a_stall_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[ControllerEpoch] = []
    guard = TenureGuard(TENURE, session_timeout_ms=6_000, on_end=told.append)
    guard.start()
    loop = asyncio.get_running_loop()
    now_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6)
    await pass_time(2)
    assert told == [1]
    guard.close()
