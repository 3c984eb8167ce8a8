"""Records found by their timestamps, whatever the batch is compressed with."""

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.empty_batches import emptied
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.batches.timestamp_search import first_of_greatest, first_record_at
from quorate_proto.v1 import errors_pb2
from tests.support.record_batches import (
    CODECS,
    LOG_APPEND_TIME,
    Record,
    assemble,
    encode_batch,
)

RECORDS = [
    Record(100, 5000, b"k" * 90, b"v" * 900),
    Record(101, 9000, None, None, (("h", b"x"),)),
    Record(102, 7000),
    Record(104, 12_000),
]


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(0, (100, 5000)), (5001, (101, 9000)), (9001, (104, 12_000)), (12_001, None)],
)
def test_first_record_at_or_after(
    codec: str, timestamp_ms: int, expected: tuple[int, int] | None
) -> None:
    batch = encode_batch(RECORDS, codec=codec)
    assert first_record_at(batch, timestamp_ms, 0, 1000) == expected


def test_only_offsets_of_the_range_count() -> None:
    batch = encode_batch(RECORDS)
    assert first_record_at(batch, 0, 102, 1000) == (102, 7000)
    assert first_record_at(batch, 9001, 0, 104) is None


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_batch(RECORDS, attributes=LOG_APPEND_TIME)
    assert first_record_at(batch, 12_000, 101, 1000) == (101, 12_000)
    assert first_record_at(batch, 12_001, 0, 1000) is None


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_a_batch_that_compaction_emptied_has_no_record_of_any_time(attributes: int) -> None:
    batch = encode_batch(RECORDS, attributes=attributes)
    assert first_record_at(emptied(read_header(batch)), 0, 0, 1000) is None


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4, 6])
def test_records_that_cannot_be_decoded_are_corrupt(compression: int) -> None:
    batch = assemble(b"\xff" * 20, base_offset=40, last_delta=4, count=5, attributes=compression)
    with pytest.raises(KafkaError, match="offset 40") as refused:
        first_record_at(batch, 0, 0, 1000)
    assert refused.value.code == errors_pb2.CORRUPT_MESSAGE


@pytest.mark.parametrize("body", [b"\x01" * 20, b"\x00" * 20, b"\x80" * 20])
def test_lengths_that_lead_nowhere_end_the_walk(body: bytes) -> None:
    batch = assemble(body, base_offset=40, last_delta=(1 << 30) - 1, count=1 << 30)
    with pytest.raises(KafkaError):
        first_record_at(batch, 0, 0, 1 << 40)


@pytest.mark.parametrize("codec", list(CODECS))
def test_kip_734_the_first_of_the_records_that_none_is_later_than(codec: str) -> None:
    times = (7, 9, 9, 9, 8, 3, 1, 12, 5)
    records = [Record(offset, time) for offset, time in enumerate(times)]
    batches = [encode_batch(records[base : base + 3], codec=codec) for base in (0, 3, 6)]
    found = {
        (start, end): first_of_greatest(batches, start, end)
        for start, end in ((0, 9), (0, 7), (2, 7), (3, 6), (4, 6), (8, 9), (9, 9))
    }
    assert found == {
        (0, 9): (7, 12),
        (0, 7): (1, 9),
        (2, 7): (2, 9),
        (3, 6): (3, 9),
        (4, 6): (4, 8),
        (8, 9): (8, 5),
        (9, 9): None,
    }


def test_kip_734_a_batch_of_the_brokers_time_has_one_time() -> None:
    batch = encode_batch(RECORDS, attributes=LOG_APPEND_TIME)
    header = read_header(batch)
    start = header.base_offset + 1
    assert first_of_greatest([batch], start, 1000) == (start, header.max_timestamp)
    assert first_of_greatest([batch], header.last_offset + 1, 1000) is None
