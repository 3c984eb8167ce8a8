"""What is left of one batch."""

import pytest

from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.empty_batches import is_empty_span
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.compaction.batch_cleaning import (
    CleanedBatch,
    CleaningOutcome,
    CleaningTimes,
    clean_batch,
    clean_marker,
)
from quorate.broker.log.compaction.offset_map import OffsetMap
from tests.support.read_records import read_records
from tests.support.record_batches import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    Record,
    assemble,
    encode_batch,
)

TIMES = CleaningTimes(now_ms=1_800_000_000_000, delete_retention_ms=1000)
RECORDS = [
    Record(100, 1_700_000_000_000, b"a", b"first", (("h", b"x"),)),
    Record(101, 1_700_000_000_500, b"b", b"second"),
    Record(103, 1_700_000_000_100, b"c", b"third" * 100),
]


def newest(**offsets: int) -> OffsetMap:
    found = OffsetMap(1 << 20)
    for key, offset in offsets.items():
        found.put(key.encode(), offset)
    return found


def clean(
    batch: bytes, found: OffsetMap, *, times: CleaningTimes = TIMES, is_pinned: bool = False
) -> CleanedBatch:
    return clean_batch(read_header(batch), batch, found, times, is_pinned=is_pinned)


def same_ends(old: bytes, new: bytes) -> tuple[BatchHeader, BatchHeader]:
    before, after = read_header(old), read_header(new)
    assert (after.base_offset, after.last_offset) == (before.base_offset, before.last_offset)
    assert after.leader_epoch == before.leader_epoch
    return before, after


@pytest.mark.parametrize("codec", list(CODECS))
def test_records_with_newer_ones_go_and_the_rest_stays_as_it_is(codec: str) -> None:
    batch = encode_batch(RECORDS, codec=codec, last_offset=110)
    outcome, data = clean(batch, newest(a=100, b=500, c=103))
    assert outcome is CleaningOutcome.REWRITTEN
    assert read_records(data) == [RECORDS[0], RECORDS[2]]
    before, after = same_ends(batch, data)
    assert after.compression == before.compression == CODECS[codec]
    assert after.max_timestamp == 1_700_000_000_100


def test_a_batch_of_newest_records_is_not_written_again() -> None:
    assert clean(encode_batch(RECORDS), newest(a=100, b=101)).outcome is CleaningOutcome.KEPT


def test_records_without_a_key_go() -> None:
    batch = encode_batch([Record(5, key=None), Record(6, key=b""), Record(7, key=b"k")])
    assert read_records(clean(batch, newest()).data) == [
        Record(6, key=b""),
        Record(7, key=b"k"),
    ]


def test_a_batch_of_which_nothing_is_left_is_dead() -> None:
    batch = encode_batch(RECORDS)
    assert clean(batch, newest(a=200, b=200, c=200)) == (CleaningOutcome.DEAD, b"")


def test_a_pinned_batch_keeps_its_header() -> None:
    batch = encode_batch(RECORDS, codec="zstd", producer=(7, 2, 40))
    outcome, data = clean(batch, newest(a=200, b=200, c=200), is_pinned=True)
    assert outcome is CleaningOutcome.REWRITTEN
    before, after = same_ends(batch, data)
    assert read_records(data) == []
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 2, 40)
    assert (after.compression, after.max_timestamp) == (0, before.max_timestamp)
    assert not is_empty_span(after)
    assert clean(data, newest(), is_pinned=True).outcome is CleaningOutcome.KEPT
    assert clean(data, newest()).outcome is CleaningOutcome.DEAD


def test_what_is_left_of_a_batch_that_is_not_pinned_tells_no_sequence() -> None:
    batch = encode_batch(RECORDS, producer=(7, 2, 40))
    assert read_header(clean(batch, newest(a=200)).data).base_sequence == -1
    assert read_header(clean(batch, newest(a=200), is_pinned=True).data).base_sequence == 40


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_tombstone_stays_for_its_time_and_then_goes(codec: str) -> None:
    records = [RECORDS[0], Record(101, -5, b"b", None, (("why", b"x"),))]
    batch = encode_batch(records, codec=codec)
    outcome, once = clean(batch, newest())
    assert outcome is CleaningOutcome.REWRITTEN
    assert read_records(once) == records
    _, header = same_ends(batch, once)
    assert header.has_delete_horizon
    assert header.base_timestamp == TIMES.now_ms + TIMES.delete_retention_ms
    before = CleaningTimes(header.base_timestamp - 1, 1000)
    assert clean(once, newest(), times=before).outcome is CleaningOutcome.KEPT
    outcome, twice = clean(once, newest(), times=CleaningTimes(header.base_timestamp, 1000))
    assert outcome is CleaningOutcome.REWRITTEN
    assert read_records(twice) == records[:1]


def test_the_horizon_of_a_tombstone_is_set_once() -> None:
    batch = encode_batch([Record(1, key=b"a"), Record(2, key=b"b", value=None)])
    once = clean(batch, newest()).data
    later = CleaningTimes(TIMES.now_ms + 500, 1000)
    twice = clean(once, newest(a=9), times=later).data
    assert read_header(twice).base_timestamp == read_header(once).base_timestamp
    assert read_records(twice) == [Record(2, key=b"b", value=None)]


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63)])
def test_timestamps_at_the_edge_of_64_bits_survive_a_new_base(timestamp_ms: int) -> None:
    """As Java's arithmetic does, which wraps: so do the deltas."""
    batch = encode_batch([Record(1, timestamp_ms, b"a", None)])
    data = clean(batch, newest()).data
    (found,) = read_records(data)
    assert (found.timestamp_ms - timestamp_ms) % 2**64 == 0


def test_the_time_of_an_append_is_every_records_time() -> None:
    batch = encode_batch(RECORDS, attributes=LOG_APPEND_TIME)
    data = clean(batch, newest(b=500)).data
    assert {record.timestamp_ms for record in read_records(data)} == {1_700_000_000_500}


def test_control_batches_of_unknown_kinds_stay() -> None:
    batch = encode_batch([Record(1, key=b"a")], attributes=CONTROL)
    kept = clean_marker(read_header(batch), batch, TIMES, is_needed=False)
    assert kept.outcome is CleaningOutcome.KEPT


def test_records_that_nobody_can_read_are_an_error() -> None:
    batch = assemble(b"\xff" * 9, base_offset=4, last_delta=0, count=1)
    with pytest.raises(UndecodableRecords):
        clean(batch, newest())
