"""Which log is cleaned next."""

from broker.log.compaction.choosing import (
    Compaction,
    DirtyLog,
    must_be_cleaned,
    newest_cleanable_ms,
    next_to_clean,
    should_be_cleaned,
)

NOW = 1_000_000
LIMITS = Compaction(0.5, 0, 10_000)


def log(number: int, clean: int, dirty: int, oldest_ms: int = NOW) -> DirtyLog:
    return DirtyLog(number, clean, dirty, oldest_ms, LIMITS)


def test_the_dirtiest_comes_first() -> None:
    logs = [log(1, 100, 100), log(2, 10, 100), log(3, 1000, 400)]
    assert next_to_clean(logs, NOW) == logs[1]


def test_nothing_is_cleaned_below_its_ratio() -> None:
    assert not should_be_cleaned(log(1, 101, 100), NOW)
    assert should_be_cleaned(log(1, 100, 100), NOW)
    assert next_to_clean([log(1, 1000, 1), log(2, 0, 0)], NOW) is None


def test_what_has_waited_for_too_long_goes_before_what_is_dirtier() -> None:
    due = log(1, 1000, 1, NOW - 10_001)
    assert must_be_cleaned(due, NOW)
    assert not must_be_cleaned(due._replace(oldest_dirty_ms=NOW - 10_000), NOW)
    assert next_to_clean([log(2, 0, 100), due], NOW) == due


def test_without_a_timestamp_nothing_is_due() -> None:
    assert not must_be_cleaned(log(1, 1000, 1, -1), NOW)


def test_what_is_young_must_wait() -> None:
    assert newest_cleanable_ms(NOW, LIMITS) is None
    assert newest_cleanable_ms(NOW, LIMITS._replace(min_compaction_lag_ms=10)) == NOW - 10
