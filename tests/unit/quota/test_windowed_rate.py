from quorate.broker.quota.windowed_rate import QuotaWindow, WindowedRate

WINDOW = QuotaWindow(samples=11, sample_seconds=1)


def test_q8_windows_span_their_number_times_their_size() -> None:
    assert QuotaWindow(samples=11, sample_seconds=1).span_ms == 11_000


def test_q11_the_first_count_is_spread_over_all_windows_but_one() -> None:
    rate = WindowedRate(WINDOW)

    rate.record(1_000, now_ms=5_000)

    assert rate.per_second(now_ms=5_000) == 100


def test_q11_a_rate_at_the_limit_is_not_throttled_and_one_above_waits_until_it_has_come_down() -> (
    None
):
    rate = WindowedRate(WINDOW)
    rate.record(1_000, now_ms=0)

    assert rate.throttle_time_ms(limit=100, now_ms=0) == 0
    assert rate.throttle_time_ms(limit=50, now_ms=0) == 10_000


def test_q11_what_is_older_than_all_windows_no_longer_counts() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(1_000, now_ms=0)

    assert rate.per_second(now_ms=10_999) > 0
    assert rate.per_second(now_ms=11_000) == 0
    assert rate.is_silent(now_ms=11_000)


def test_q11_a_steady_load_is_told_as_it_is() -> None:
    rate = WindowedRate(WINDOW)
    for second in range(60):
        rate.record(500, now_ms=second * 1_000)

    assert 500 <= rate.per_second(now_ms=59_999) <= 550


def test_q11_one_window_alone_is_never_divided_by_nothing() -> None:
    rate = WindowedRate(QuotaWindow(samples=1, sample_seconds=1))
    rate.record(10, now_ms=0)

    assert rate.per_second(now_ms=0) == 10
