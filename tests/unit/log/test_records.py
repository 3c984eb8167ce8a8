"""Where the records of a batch are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import HEADER_BYTES, read_header
from quorate.broker.log.batches.records import plain_records, signed_varint, sized_field, walk
from tests.support.record_batches import Record, assemble, encode_batch, varint

_FIELD = st.none() | st.binary(max_size=200)
_RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        # The difference of any two fits the 64 bits that a batch has for it.
        timestamp_ms=st.integers(-(2**62), 2**62 - 1),
        key=_FIELD,
        value=_FIELD,
        headers=st.lists(st.tuples(st.text(max_size=3), _FIELD), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(_RECORDS, st.lists(st.integers(1, 2**20), min_size=8, max_size=8))
def test_a_walk_meets_every_record(records: list[Record], steps: list[int]) -> None:
    offset, placed = 40, []
    for record, step in zip(records, steps, strict=False):
        placed.append(Record(offset, record.timestamp_ms, record.key, record.value, record.headers))
        offset += step
    batch = encode_batch(placed)
    header, body = read_header(batch), plain_records(read_header(batch), batch)
    end = 0
    for record, place in zip(placed, walk(body, header.record_count), strict=True):
        start, rest, beyond, timestamp_delta, offset_delta, key_at, key_length, has_value = place
        assert start == end
        end = beyond
        assert header.base_timestamp + timestamp_delta == record.timestamp_ms
        assert header.base_offset + offset_delta == record.offset
        assert body[rest:].startswith(varint(offset_delta))
        key = body[key_at : key_at + key_length] if key_length >= 0 else None
        assert (key, has_value) == (record.key, record.value is not None)
        assert sized_field(body, key_at + max(0, key_length)) == record.value
    assert end == len(body)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_as_kafka_writes_it(value: int) -> None:
    assert signed_varint(value) == varint(value)


@given(st.binary(max_size=60), st.integers(1, 5))
def test_bytes_that_are_no_records_end_the_walk(body: bytes, count: int) -> None:
    """It ends, with records that lie within what is there or with a refusal."""
    try:
        places = list(walk(body, count))
    except UndecodableRecords:
        return
    assert len(places) == count
    for start, rest, end, _, _, key_at, key_length, _ in places:
        assert 0 <= start < rest < end <= len(body)
        assert key_at + max(0, key_length) < end


def test_fewer_records_than_the_header_says_are_refused() -> None:
    body = encode_batch([Record(0, key=b"k")])[HEADER_BYTES:]
    batch = assemble(body, base_offset=0, last_delta=1, count=2)
    with pytest.raises(UndecodableRecords, match="fewer than 2"):
        list(walk(plain_records(read_header(batch), batch), 2))
