"""Batches without records, and what a follower does with those of its leader."""

from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.empty_batches import emptied, empty_span, is_empty_span, span_from
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import everything, opened
from tests.support.record_batches import Record, encode_batch

FIRST = read_header(encode_batch([Record(100), Record(101)], codec="gzip", producer=(7, 2, 40)))


def span(base_offset: int, last_offset: int) -> bytes:
    return empty_span(FIRST._replace(base_offset=base_offset), last_offset, 77)


def test_an_empty_span_can_be_cut_anywhere() -> None:
    header = read_header(span(100, 500))
    assert is_empty_span(header)
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (100, 500, 77)
    rest, data = span_from(header, 300)
    assert rest == header._replace(base_offset=300, last_offset_delta=200, crc=rest.crc)
    assert bytes(data) == span(300, 500)


def test_an_emptied_batch_is_remembered_as_before() -> None:
    left = read_header(emptied(FIRST))

    def sequence(header: BatchHeader) -> tuple[int, ...]:
        return (*header[:1], header.last_offset, *header[9:12], header.max_timestamp)

    assert sequence(left) == sequence(FIRST)
    assert (left.record_count, left.compression) == (0, 0)
    assert not is_empty_span(left)


async def test_a_follower_inside_an_empty_span_takes_the_rest_of_it(tmp_path: Path) -> None:
    batches = encode_batch([Record(0), Record(1)]) + encode_batch([Record(2)])
    sent = span(1, 9) + encode_batch([Record(10)])
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_follower(batches)
        appended = log.append_as_follower(sent)
        assert (appended.base_offset, appended.last_offset) == (3, 10)
        await store.until_flushed(log)
    async with opened(tmp_path) as store:
        assert everything(store.log()) == batches + span(3, 9) + encode_batch([Record(10)])


async def test_a_log_that_begins_inside_a_batch_can_be_followed(tmp_path: Path) -> None:
    """As after DeleteRecords: the follower starts where its leader's log does."""
    batches = encode_batch([Record(offset) for offset in range(10)]) + encode_batch([Record(10)])
    async with opened(tmp_path) as store:
        log = store.create()
        await log.truncate_fully_and_start_at(4)
        log.append_as_follower(batches)
        assert log.leader_epochs.entries == [(0, 4)]
        await store.until_flushed(log)
    async with opened(tmp_path) as store:
        log = store.log()
        assert (log.log_start_offset, log.log_end_offset) == (4, 11)
        assert log.leader_epochs.entries == [(0, 4)]
        assert everything(log) == batches


async def test_a_batch_of_records_is_never_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_follower(encode_batch([Record(0), Record(1)]))
        with pytest.raises(KafkaError) as refused:
            log.append_as_follower(encode_batch([Record(1), Record(2)]))
        assert refused.value.code == errors_pb2.OFFSET_OUT_OF_RANGE
