import pytest

from quorate.broker.quota.token_bucket import TokenBucket


def test_q2_a_burst_goes_through_whole_and_leaves_a_debt() -> None:
    bucket = TokenBucket(rate=5, burst=500, now_ms=0)

    bucket.take(560, now_ms=0)

    assert bucket.tokens(now_ms=0) == -60


def test_q3_the_throttle_is_the_debt_over_the_rate() -> None:
    bucket = TokenBucket(rate=5, burst=500, now_ms=0)
    bucket.take(560, now_ms=0)

    assert bucket.throttle_time_ms(now_ms=0) == 12_000
    assert bucket.throttle_time_ms(now_ms=11_999) == 1
    assert bucket.throttle_time_ms(now_ms=12_000) == 0


def test_s1_tokens_of_quota_5_with_10_windows_of_2_seconds() -> None:
    bucket = TokenBucket(rate=5, burst=5 * 10 * 2, now_ms=0)

    bucket.take(60, now_ms=0)
    assert bucket.tokens(now_ms=0) == 40
    bucket.take(5, now_ms=2_000)
    assert bucket.tokens(now_ms=2_000) == 45
    bucket.take(60, now_ms=4_000)
    assert bucket.tokens(now_ms=4_000) == -5


def test_q2_never_more_than_the_burst() -> None:
    bucket = TokenBucket(rate=5, burst=100, now_ms=0)
    bucket.take(10, now_ms=0)

    assert bucket.tokens(now_ms=1_000_000) == 100
    assert bucket.is_full(now_ms=1_000_000)


def test_q2_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket = TokenBucket(rate=5, burst=100, now_ms=1_000)
    bucket.take(50, now_ms=1_000)

    assert bucket.tokens(now_ms=0) == 50
    assert bucket.tokens(now_ms=1_000) == 50


def test_q2_another_rate_keeps_the_debt() -> None:
    bucket = TokenBucket(rate=10, burst=100, now_ms=0)
    bucket.take(180, now_ms=0)

    bucket.set_limits(rate=20, burst=200, now_ms=0)

    assert bucket.tokens(now_ms=0) == -80
    assert bucket.throttle_time_ms(now_ms=0) == 4_000


@pytest.mark.parametrize("tokens", [0.1, 1 / 3, 7.7])
def test_q3_who_waits_as_long_as_it_is_told_is_let_in(tokens: float) -> None:
    bucket = TokenBucket(rate=3, burst=0, now_ms=0)
    bucket.take(tokens, now_ms=0)

    assert bucket.throttle_time_ms(now_ms=bucket.throttle_time_ms(now_ms=0)) == 0
