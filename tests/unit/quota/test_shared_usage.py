"""A mute belongs to the clients that share a quota, ends in turns, and is bounded."""

import pytest

from quorate.broker.quota import shared_usage
from quorate.broker.quota.shared_usage import TURN_MS, TURNS_SPAN_MS, SharedUsage
from quorate.broker.quota.windowed_rate import QuotaWindow


def usage(limit: float = 10.0, most_ms: float | None = None) -> SharedUsage:
    return SharedUsage(QuotaWindow(11, 1), limit, most_ms)


def test_q5_below_the_limit_nobody_waits() -> None:
    one = usage()
    assert one.use(100, 0.0) == 0
    assert one.wait_ms(0.0) == one.muted_ms(0.0) == 0


def test_q5_the_mute_lasts_as_long_as_was_told_and_not_until_the_windows_are_over() -> None:
    one = usage()
    assert one.use(120, 0.0) == 2_000
    assert one.wait_ms(1_500.0) == 500
    assert one.wait_ms(2_000.0) == 0


def test_q5_a_mute_outlives_its_windows() -> None:
    one = usage()
    assert one.use(1_100, 0.0) == 100_000
    assert one.muted_ms(90_000.0) == 10_000
    assert one.use(0, 90_000.0) == 10_000
    assert not one.is_forgettable(90_000.0)
    assert one.is_forgettable(120_000.0)


def test_q5_requests_that_wait_for_the_same_end_take_turns() -> None:
    one = usage()
    one.use(120, 0.0)
    assert [one.wait_ms(0.0) for _ in range(3)] == [2_000, 2_000 + TURN_MS, 2_000 + 2 * TURN_MS]


def test_q5_turns_that_are_left_unused_delay_others_for_a_second_at_most() -> None:
    one = usage()
    one.use(120, 0.0)
    waits_ms = [one.wait_ms(0.0) for _ in range(10_000)]
    assert max(waits_ms) == 2_000 + TURNS_SPAN_MS


def test_q11_the_mute_of_a_time_quota_is_short() -> None:
    one = usage(most_ms=1_000.0)
    assert one.use(1e9, 0.0) == 1_000
    assert one.wait_ms(0.0) == 1_000


def test_q11_a_quota_that_is_raised_ends_the_mute() -> None:
    one = usage()
    one.use(10_000, 0.0)
    one.set_limit(10.0, 100.0)
    assert one.muted_ms(100.0) > 900_000
    one.set_limit(1e6, 100.0)
    assert one.wait_ms(100.0) == 0


def test_q5_the_places_of_those_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_usage, "WAITING_MAX", 2)
    one = usage()
    assert [one.take_place() for _ in range(3)] == [True, True, False]
    assert not one.is_forgettable(1e9)
    one.leave_place()
    assert one.take_place()
