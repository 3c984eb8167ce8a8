"""A share-partition at its leader: what is handed out, to whom, how often, and when it is over."""

import tracemalloc

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.acknowledgements import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
    check_batches,
)
from quorate.broker.coordinator.share.state.acquiring import ReadBatch, ShareLimits, Wanted
from quorate.broker.coordinator.share.state.dead_records import DeadRecords, DeathReason
from quorate.broker.coordinator.share.state.record_state import (
    AcquiredRecords,
    RecordState,
    StateBatch,
)
from quorate.broker.coordinator.share.state.record_window import RecordWindow, window_of
from quorate.broker.coordinator.share.state.share_partition import SharePartition
from quorate_proto.v1 import errors_pb2

LOCK_MS = 1_000
LIMITS = ShareLimits(LOCK_MS, delivery_count_limit=5, max_record_locks=2_000)

A, B = "member-a", "member-b"


def partition(
    start: int = 0, limits: ShareLimits = LIMITS, batches: list[StateBatch] | None = None
) -> SharePartition:
    return SharePartition(window_of(start, batches or []), limits)


def log_of(records: int, size: int, first: int = 0) -> list[ReadBatch]:
    """Return a log of record batches with ``size`` records each."""
    return [ReadBatch(at, at + size - 1) for at in range(first, first + records, size)]


def acquire(
    share: SharePartition,
    batches: list[ReadBatch],
    member: str = A,
    records: int = 500,
    *,
    now_ms: int = 0,
    exact: bool = False,
) -> list[AcquiredRecords]:
    at = share.fetch_offset()
    if at is None:
        return []
    seen = [batch for batch in batches if batch.last >= at]
    return share.acquire(Wanted(member, records, records, exact), seen, now_ms)


def ack(first: int, last: int, *types: int) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(first, last, bytes(types or (ACCEPT,)))]


def take(
    share: SharePartition,
    batches: list[AcknowledgementBatch],
    member: str = A,
    now_ms: int = 0,
) -> None:
    (change,) = share.acknowledge(member, batches, now_ms)
    share.committed(change)


def refusal(share: SharePartition, batches: list[AcknowledgementBatch], member: str = A) -> int:
    with pytest.raises(KafkaError) as refused:
        share.acknowledge(member, batches, 0)
    return refused.value.code


def test_whole_record_batches_are_handed_out() -> None:
    share = partition()
    assert acquire(share, log_of(100, 30), records=50) == [AcquiredRecords(0, 59, 1)]
    assert acquire(share, log_of(120, 30), B, records=50) == [AcquiredRecords(60, 119, 1)]
    assert share.fetch_offset() == 120


def test_members_that_want_it_get_no_record_more() -> None:
    share = partition()
    assert acquire(share, log_of(90, 30), records=50, exact=True) == [AcquiredRecords(0, 49, 1)]
    assert acquire(share, log_of(90, 30), B, 20, exact=True) == [AcquiredRecords(50, 69, 1)]


def test_records_are_returned_in_batches_of_the_size_that_is_asked_for() -> None:
    share = partition()
    wanted = Wanted(A, 100, 25)
    assert share.acquire(wanted, log_of(100, 10), 0) == [
        AcquiredRecords(0, 29, 1),
        AcquiredRecords(30, 59, 1),
        AcquiredRecords(60, 89, 1),
        AcquiredRecords(90, 99, 1),
    ]


def test_accepted_records_are_left_behind() -> None:
    share = partition()
    acquire(share, log_of(100, 10), records=100)
    take(share, ack(50, 99))
    assert (share.window.start, share.window.end, len(share.window)) == (0, 100, 2)
    take(share, ack(0, 49))
    assert (share.window.start, share.window.end, len(share.window)) == (100, 100, 0)


def test_nobody_gets_records_whose_acknowledgement_is_being_written() -> None:
    share = partition()
    acquire(share, log_of(10, 10))
    (change,) = share.acknowledge(A, ack(0, 9, RELEASE), 0)
    assert acquire(share, log_of(10, 10), B) == []
    assert refusal(share, ack(0, 9)) == errors_pb2.INVALID_RECORD_STATE
    assert not share.expire(LOCK_MS)
    share.committed(change)
    assert acquire(share, log_of(10, 10), B) == [AcquiredRecords(0, 9, 2)]


def test_the_member_keeps_what_could_not_be_written_until_its_lock_ends() -> None:
    share = partition()
    acquire(share, log_of(10, 10))
    (change,) = share.acknowledge(A, ack(0, 9), 0)
    share.failed(change, LOCK_MS - 1)
    assert acquire(share, log_of(10, 10), B) == []
    (change,) = share.acknowledge(A, ack(0, 9), 0)
    share.failed(change, LOCK_MS)
    assert acquire(share, log_of(10, 10), B) == [AcquiredRecords(0, 9, 2)]
    assert refusal(share, ack(0, 9)) == errors_pb2.INVALID_RECORD_STATE


def test_a_lock_ends_and_can_be_renewed() -> None:
    share = partition()
    acquire(share, log_of(20, 10), records=20)
    assert share.next_deadline_ms == LOCK_MS
    assert not share.acknowledge(A, ack(0, 9, RENEW), 500)
    (change,) = share.expire(LOCK_MS)
    assert change.batches == [StateBatch(10, 19, RecordState.AVAILABLE, 1)]
    assert acquire(share, log_of(20, 10), B, now_ms=LOCK_MS) == [AcquiredRecords(10, 19, 2)]
    assert share.next_deadline_ms == LOCK_MS + 500
    assert refusal(share, ack(10, 19)) == errors_pb2.INVALID_RECORD_STATE
    take(share, ack(0, 9))


def test_renewing_can_be_forbidden() -> None:
    share = partition(limits=LIMITS._replace(renews=False))
    acquire(share, log_of(10, 10))
    assert refusal(share, ack(0, 9, RENEW)) == errors_pb2.INVALID_RECORD_STATE


@pytest.mark.parametrize("how", ["released", "too late", "the session is over"])
def test_a_record_is_delivered_a_limited_number_of_times(how: str) -> None:
    share = partition(limits=LIMITS._replace(delivery_count_limit=3))
    for delivery in (1, 2, 3):
        assert acquire(share, log_of(1, 1)) == [AcquiredRecords(0, 0, delivery)]
        if how == "released":
            take(share, ack(0, 0, RELEASE))
        elif how == "too late":
            share.expire(LOCK_MS)
        else:
            (change,) = share.release(A)
            share.committed(change)
    assert share.window.start == 1
    assert acquire(share, log_of(1, 1)) == []


def test_records_that_fail_again_and_again_come_in_ever_smaller_parts() -> None:
    share = partition()
    log = log_of(8, 8)
    sizes = []
    for _ in range(3):
        sizes.append([one.records for one in acquire(share, log)])
        take(share, ack(0, 7, RELEASE))
    sizes.append([one.records for one in acquire(share, log)])
    sizes.append([one.records for one in acquire(share, log)])
    take(share, ack(0, 7, RELEASE))
    sizes.append([one.records for one in acquire(share, log)])
    assert sizes == [[8], [8], [8], [4], [4], [1]]


def test_each_record_may_have_its_own_acknowledgement() -> None:
    share = partition()
    acquire(share, log_of(6, 6))
    (change,) = share.acknowledge(A, ack(0, 5, ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT), 0)
    assert change.batches == [
        StateBatch(2, 2, RecordState.AVAILABLE, 1),
        StateBatch(3, 4, RecordState.ARCHIVED, 1),
        StateBatch(5, 5, RecordState.ACKNOWLEDGED, 1),
    ]
    assert (change.start_offset, change.final_records) == (2, 3)
    share.committed(change)
    assert acquire(share, log_of(6, 6), B) == [AcquiredRecords(2, 2, 2)]


def test_all_of_an_acknowledgement_is_taken_or_nothing() -> None:
    share = partition()
    acquire(share, log_of(10, 10))
    acquire(share, log_of(20, 10), B)
    assert refusal(share, ack(0, 19)) == errors_pb2.INVALID_RECORD_STATE
    assert refusal(share, [*ack(0, 4), *ack(15, 15)]) == errors_pb2.INVALID_RECORD_STATE
    assert refusal(share, ack(0, 20)) == errors_pb2.INVALID_RECORD_STATE
    take(share, ack(0, 9))


def test_what_is_acknowledged_again_is_refused_or_passed_over() -> None:
    share = partition()
    acquire(share, log_of(10, 10))
    take(share, ack(5, 9))
    assert refusal(share, ack(5, 9)) == errors_pb2.INVALID_RECORD_STATE
    take(share, ack(0, 4))
    assert not share.acknowledge(A, ack(5, 9), 0)


def test_a_window_has_a_limited_number_of_records() -> None:
    share = partition(limits=LIMITS._replace(max_record_locks=25))
    assert acquire(share, log_of(100, 10), records=100) == [AcquiredRecords(0, 29, 1)]
    assert share.fetch_offset() is None
    take(share, ack(10, 19, RELEASE))
    assert share.fetch_offset() == 10
    assert acquire(share, log_of(100, 10), B, records=100) == [AcquiredRecords(10, 19, 2)]
    assert share.fetch_offset() is None
    take(share, ack(0, 9))
    assert acquire(share, log_of(100, 10), records=100) == [AcquiredRecords(30, 39, 1)]


def test_aborted_records_are_passed_over() -> None:
    share = partition()
    log = [ReadBatch(0, 4), ReadBatch(5, 9, True), ReadBatch(10, 10, True), ReadBatch(11, 12)]
    assert acquire(share, log) == [AcquiredRecords(0, 4, 1), AcquiredRecords(11, 12, 1)]
    take(share, ack(0, 4))
    assert share.window.start == 11
    share = partition(batches=[StateBatch(0, 9, RecordState.AVAILABLE, 1)])
    assert acquire(share, log[:2]) == [AcquiredRecords(0, 4, 2)]


def test_only_hidden_records_move_the_start() -> None:
    share = partition()
    assert acquire(share, [ReadBatch(0, 4, True)]) == []
    assert (share.window.start, share.window.end) == (5, 5)


def test_records_that_the_log_no_longer_has_are_forgotten() -> None:
    share = partition()
    acquire(share, log_of(20, 10), records=20)
    take(share, ack(10, 19, RELEASE))
    (change,) = share.acknowledge(A, ack(0, 9), 0)
    share.log_begins_at(15)
    share.committed(change)
    assert (share.window.start, share.window.end) == (15, 20)
    assert acquire(share, log_of(5, 5, first=15), B) == [AcquiredRecords(15, 19, 2)]
    assert not share.acknowledge(A, ack(0, 9), 0)
    share.log_begins_at(50)
    assert (share.window.start, share.window.end, share.fetch_offset()) == (50, 50, 50)


def test_the_next_leader_goes_on_from_what_is_stored() -> None:
    stored = [
        StateBatch(3, 4, RecordState.ACKNOWLEDGED, 1),
        StateBatch(7, 9, RecordState.AVAILABLE, 2),
    ]
    share = partition(2, batches=stored)
    assert acquire(share, log_of(20, 5), records=1) == [AcquiredRecords(2, 2, 1)]
    assert acquire(share, log_of(20, 5), records=1) == [AcquiredRecords(5, 6, 1)]
    assert acquire(share, log_of(20, 5), records=1) == [AcquiredRecords(7, 9, 3)]
    assert acquire(share, log_of(20, 5), records=1) == [AcquiredRecords(10, 14, 1)]


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(0, 4, RecordState.AVAILABLE, 1), StateBatch(4, 5, RecordState.AVAILABLE, 1)],
        [StateBatch(5, 4, RecordState.AVAILABLE, 1)],
    ],
)
def test_a_stored_state_that_contradicts_itself_is_refused(batches: list[StateBatch]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        window_of(0, batches)


@pytest.mark.parametrize(
    ("batches", "renews"),
    [
        (ack(5, 4), True),
        (ack(-1, 4), True),
        ([*ack(0, 4), *ack(4, 5)], True),
        (ack(0, 4, ACCEPT, ACCEPT), True),
        ([AcknowledgementBatch(0, 4, b"")], True),
        (ack(0, 4, 5), True),
        (ack(0, 4, RENEW), False),
    ],
)
def test_malformed_acknowledgements_are_refused(
    batches: list[AcknowledgementBatch], renews: bool
) -> None:
    with pytest.raises(KafkaError) as refused:
        check_batches(batches, renews=renews)
    assert refused.value.code == errors_pb2.INVALID_REQUEST


def test_whole_batches_in_flight_are_few_ranges() -> None:
    share = partition(limits=LIMITS._replace(max_record_locks=200_000))
    for first in range(0, 100_000, 500):
        acquire(share, log_of(500, 100, first), now_ms=first)
    assert share.window.records == 100_000
    assert len(share.window) == 200
    take(share, ack(500, 99_999))
    assert len(share.window) == 2


def test_single_records_in_flight_take_little_memory() -> None:
    """Every second record is accepted: there cannot be more ranges."""
    share = partition(limits=LIMITS._replace(max_record_locks=20_000))
    tracemalloc.start()
    try:
        for first in range(0, 10_000, 500):
            acquire(share, log_of(500, 100, first), now_ms=first)
            take(share, [one for at in range(first + 1, first + 500, 2) for one in ack(at, at)])
        ranges, final = len(share.window), share.window.final_records(0)
        with_it, _ = tracemalloc.get_traced_memory()
        del share
        without_it, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (ranges, final) == (10_000, 5_000)
    assert (with_it - without_it) / ranges < 24, "bytes for each range"


def test_kip_1191_a_gap_has_no_dead_letter() -> None:
    share = partition(limits=LIMITS._replace(has_dead_letters=True))
    acquire(share, log_of(4, 4))
    plain, dying = share.acknowledge(A, ack(0, 3, ACCEPT, GAP, RELEASE, REJECT), 0)
    assert [(one.first, one.last) for one in plain.ranges] == [(0, 0), (1, 1), (2, 2)]
    assert dying.dead == [DeadRecords(3, 3, 1, DeathReason.REJECTED)]
    share.committed(plain)
    assert share.window.start == 2
    share.failed(dying, 0)
    take(share, ack(3, 3))
    assert acquire(share, log_of(4, 4), B) == [AcquiredRecords(2, 2, 2)]


def test_a_range_that_grew_to_the_left_is_not_handed_out_beyond_what_was_read() -> None:
    share = partition()
    acquire(share, log_of(20, 10), records=20)
    take(share, ack(10, 19, RELEASE))
    assert share.fetch_offset() == 10
    take(share, ack(0, 9, RELEASE))
    read = log_of(10, 10, first=10)
    assert share.acquire(Wanted(B, 500, 500), read, 0) == [AcquiredRecords(10, 19, 2)]
    assert share.fetch_offset() == 0


def test_an_empty_window_has_nothing_available() -> None:
    window = RecordWindow(7)
    assert window.first_available() is None
    assert (window.records, list(window), window.between(0, 100)) == (0, [], [])
