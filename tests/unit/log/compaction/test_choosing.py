"""Which log is cleaned next."""

import pytest

from quorate.broker.log.compaction.log_selection import (
    CompactionOptions,
    LogToClean,
    is_overdue,
    newest_cleanable_ms,
    next_to_clean,
    should_be_cleaned,
    should_be_sealed,
)

NOW = 1_000_000
TEN_SECONDS = CompactionOptions(max_compaction_lag_ms=10_000)


def log(clean: int, dirty: int, oldest_ms: int = NOW) -> LogToClean:
    return LogToClean(clean, dirty, oldest_ms, TEN_SECONDS)


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
    assert newest_cleanable_ms(NOW, CompactionOptions()) is None
    assert newest_cleanable_ms(NOW, CompactionOptions(min_compaction_lag_ms=10)) == NOW - 10


@pytest.mark.parametrize(
    ("clean", "dirty", "size", "age_ms", "sealed"),
    [
        (0, 0, 99, 10, False),  # neither old nor big
        (0, 0, 99, 1000, True),  # old
        (0, 0, 100, 10, True),  # big
        (0, 0, 0, 1000, False),  # there is nothing
        (1000, 0, 100, 1000, False),  # would not be cleaned then
        (1000, 950, 100, 1000, True),  # but with what is dirty already
    ],
)
def test_a_segment_ends_early_for_a_log_that_will_be_cleaned_then(
    clean: int, dirty: int, size: int, age_ms: int, sealed: bool
) -> None:
    compaction = CompactionOptions(segment_ms=1000, segment_bytes=100)
    log = LogToClean(clean, dirty, 0 if dirty else -1, compaction)
    oldest_ms = NOW - age_ms if size else -1
    assert should_be_sealed(log, oldest_ms, size, NOW) is sealed


def test_a_segment_ends_at_once_for_what_is_overdue() -> None:
    compaction = CompactionOptions(max_compaction_lag_ms=10)
    log = LogToClean(1000, 0, -1, compaction)
    assert should_be_sealed(log, NOW - 11, 1, NOW)
    assert not should_be_sealed(log, NOW - 10, 1, NOW)
