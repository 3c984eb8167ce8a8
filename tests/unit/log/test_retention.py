"""Which batches retention deletes: by age, by size, and whatever clocks and producers do."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.segments.batch_index import BatchIndex
from quorate.broker.log.stored.retention import (
    KEEP_ALL,
    Retention,
    batches_to_delete,
    segment_times,
)

NOW_MS = 1_000_000
HOUR_MS = 3_600
"""A short one."""


def segment(segment_id: int, written_at_ms: int = 0) -> Any:  # noqa: ANN401 - a Segment
    return SimpleNamespace(id=segment_id, written_at_ms=written_at_ms)


def index_of(*timestamps: int, sizes: tuple[int, ...] = (), segments: str = "") -> BatchIndex:
    """Batches of ten records; ``segments``: a digit per batch says in which it lies."""
    index = BatchIndex()
    known = {digit: segment(int(digit)) for digit in segments or "1"}
    for number, timestamp in enumerate(timestamps):
        index.append(10 * number, sizes[number] if sizes else 100, timestamp)
        index.place(10 * number, known[segments[number] if segments else "1"])
    return index


def gone(
    index: BatchIndex,
    *,
    ms: int = -1,
    bytes: int = -1,
    limit: int | None = None,
    now_ms: int = NOW_MS,
    times: dict[int, int] | None = None,
) -> int:
    most = len(index) if limit is None else limit
    return batches_to_delete(index, most, Retention(ms, bytes), now_ms, times or {1: NOW_MS})


def test_d3_what_is_older_than_the_retention_time_goes() -> None:
    index = index_of(NOW_MS - HOUR_MS - 1, NOW_MS - HOUR_MS, NOW_MS)
    assert gone(index, ms=HOUR_MS) == 1
    assert gone(index, ms=HOUR_MS - 1) == 2
    assert gone(index, ms=0, now_ms=NOW_MS + 1) == 3
    assert gone(index, ms=-1) == 0


def test_d3_an_old_batch_behind_a_young_one_stays() -> None:
    assert gone(index_of(5, NOW_MS, 7), ms=HOUR_MS) == 1


def test_d3_as_much_as_the_retention_size_stays() -> None:
    index = index_of(1, 1, 1, 1, sizes=(10, 20, 30, 40))
    assert [gone(index, bytes=kept) for kept in (100, 91, 90, 71, 70, 40, 39, 0)] == [
        *(0, 0, 1, 1, 2, 3, 3, 4),
    ]


def test_d3_the_rule_that_deletes_more_decides() -> None:
    index = index_of(1, 1, NOW_MS, NOW_MS)
    assert gone(index, ms=HOUR_MS, bytes=300) == 2
    assert gone(index, ms=HOUR_MS, bytes=100) == 3


def test_d3_nothing_that_is_not_committed_goes() -> None:
    index = index_of(1, 1, 1)
    for limit in range(4):
        assert gone(index, ms=0, limit=limit) == limit
        assert gone(index, bytes=0, limit=limit) == limit


def test_d3_batches_without_timestamps_are_as_old_as_their_segment() -> None:
    index = index_of(-1, -1, -1, segments="112")
    old, young = NOW_MS - HOUR_MS - 1, NOW_MS
    assert gone(index, ms=HOUR_MS, times={1: young, 2: young}) == 0
    assert gone(index, ms=HOUR_MS, times={1: old, 2: young}) == 2
    assert gone(index, ms=HOUR_MS, times={1: old, 2: old}) == 3
    mixed = index_of(-1, 5, NOW_MS, segments="112")
    assert gone(mixed, ms=HOUR_MS, times={1: young, 2: young}) == 0, "the first is young"
    assert gone(mixed, ms=HOUR_MS, times={1: old, 2: old}) == 2


def test_d3_a_timestamp_in_the_future_keeps_a_log_no_longer_than_its_segment() -> None:
    index = index_of(5, NOW_MS + 10**9, 6, 7, segments="1122")
    old, young = NOW_MS - HOUR_MS - 1, NOW_MS
    assert gone(index, ms=HOUR_MS, times={1: young, 2: young}) == 1
    assert gone(index, ms=HOUR_MS, times={1: old, 2: young}) == 2
    assert gone(index, ms=HOUR_MS, times={1: old, 2: old}) == 4


def test_d3_a_clock_that_jumps_back_deletes_nothing() -> None:
    """Everything seems to be of the future then, its segments' times included."""
    index = index_of(NOW_MS - 10, NOW_MS - 5, -1)
    assert gone(index, ms=0, now_ms=NOW_MS // 2, times={1: NOW_MS}) == 0


def test_d3_what_was_written_while_the_clock_was_back_does_not_look_old_later() -> None:
    times = segment_times({3: segment(3, 10), 1: segment(1, NOW_MS - 7), 2: segment(2, 20)})
    assert times == {1: NOW_MS - 7, 2: NOW_MS - 7, 3: NOW_MS - 7}
    index = index_of(-1, -1, segments="23")
    assert gone(index, ms=HOUR_MS, times=dict(times)) == 0


def test_d3_a_log_without_limits_is_kept() -> None:
    assert KEEP_ALL.is_for_ever
    assert not Retention(bytes=0).is_for_ever
    assert batches_to_delete(index_of(1, 2), 2, KEEP_ALL, NOW_MS, {1: 0}) == 0
    assert batches_to_delete(cast("Any", None), 0, Retention(0, 0), NOW_MS, {}) == 0


@given(
    batches=st.lists(
        st.tuples(st.integers(-1, 2_000), st.integers(1, 50), st.integers(1, 3)), max_size=20
    ),
    ms=st.integers(-1, 1_500),
    kept_bytes=st.integers(-1, 500),
    now_ms=st.integers(0, 2_000),
    times=st.fixed_dictionaries({1: st.integers(0, 2_000), 2: st.integers(0, 2_000)}),
    data=st.data(),
)
def test_d3_what_stays_is_young_and_no_more_than_asked_for(
    batches: list[tuple[int, int, int]],
    ms: int,
    kept_bytes: int,
    now_ms: int,
    times: dict[int, int],
    data: st.DataObject,
) -> None:
    """Against the rules said one batch at a time; segments 1 to 3 in order, 3 has no time."""
    batches.sort(key=lambda batch: batch[2])
    limit = data.draw(st.integers(0, len(batches)))
    index = BatchIndex()
    known = {number: segment(number) for number in (1, 2, 3)}
    for number, (timestamp, size, where) in enumerate(batches):
        index.append(number, size, timestamp)
        index.place(number, known[where])
    deleted = gone(index, ms=ms, bytes=kept_bytes, limit=limit, now_ms=now_ms, times=times)
    assert 0 <= deleted <= limit
    left_bytes = sum(size for _, size, _ in batches[deleted:])
    greatest = -1
    by_age = deleted
    for number, (timestamp, _, where) in enumerate(batches[: deleted + 1]):
        greatest = max(greatest, timestamp)
        age_from = greatest if 0 <= greatest <= now_ms else times.get(where, now_ms - ms)
        if ms < 0 or age_from >= now_ms - ms:
            by_age = min(by_age, number)
            break
    else:
        by_age = len(batches[: deleted + 1])
    too_big = kept_bytes >= 0 and deleted < limit
    if too_big:
        assert left_bytes - batches[deleted][1] < kept_bytes, "no more is kept than asked for"
    if deleted < limit:
        assert by_age <= deleted, "the first that stays is young"
    if by_age < deleted:
        assert left_bytes >= kept_bytes >= 0, "what went and was young went for its size"
