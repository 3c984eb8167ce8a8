"""Which log is cleaned next."""

from broker.log.compaction.choosing import (
    Compaction,
    DirtyLog,
    is_overdue,
    newest_cleanable_ms,
    next_to_clean,
    should_be_cleaned,
)

NOW = 1_000_000
TEN_SECONDS = Compaction(max_compaction_lag_ms=10_000)


def log(clean: int, dirty: int, oldest_ms: int = NOW) -> DirtyLog:
    return DirtyLog(clean, dirty, oldest_ms, TEN_SECONDS)


def test_the_dirtiest_comes_first() -> None:
    logs = [("a", log(100, 100)), ("b", log(10, 100)), ("c", log(1000, 400))]
    assert next_to_clean(logs, NOW) == "b"


def test_nothing_is_cleaned_below_its_ratio() -> None:
    assert not should_be_cleaned(log(101, 100), NOW)
    assert should_be_cleaned(log(100, 100), NOW)
    assert next_to_clean([("a", log(1000, 1)), ("b", log(0, 0))], NOW) is None


def test_what_has_waited_for_too_long_goes_before_what_is_dirtier() -> None:
    assert is_overdue(NOW - 10_001, TEN_SECONDS, NOW)
    assert not is_overdue(NOW - 10_000, TEN_SECONDS, NOW)
    logs = [("dirty", log(0, 100)), ("due", log(1000, 1, NOW - 10_001))]
    assert next_to_clean(logs, NOW) == "due"


def test_without_a_timestamp_nothing_is_due() -> None:
    assert not is_overdue(-1, TEN_SECONDS, NOW)
    assert not should_be_cleaned(log(1000, 1, -1), NOW)


def test_what_is_clean_is_never_due() -> None:
    assert not should_be_cleaned(log(1000, 0, 0), NOW)


def test_what_is_young_must_wait() -> None:
    assert newest_cleanable_ms(NOW, Compaction()) is None
    assert newest_cleanable_ms(NOW, Compaction(min_compaction_lag_ms=10)) == NOW - 10
