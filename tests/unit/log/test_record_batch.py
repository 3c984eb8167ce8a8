"""What the log accepts as record batches, and how it says no."""

import struct
from collections.abc import Callable
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import check_produced, check_replicated
from quorate.broker.log.batches.record_batch import (
    iterate_batches,
    patched,
    put_in_place,
    read_header,
)
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import batch
from tests.support.record_batches import CONTROL, TRANSACTIONAL, Record, assemble, encode_batch

WHERE = "orders-3"


def refusal_of(records: bytes) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        list(iterate_batches(records, WHERE))
    assert WHERE in refused.value.message
    return refused.value


def damaged(good: bytes, position: int, replacement: bytes) -> bytes:
    return good[:position] + replacement + good[position + len(replacement) :]


def test_header_fields_are_those_of_the_wire() -> None:
    records = [Record(7, 1000), Record(8, 3000), Record(9, 2000)]
    header = read_header(encode_batch(records, codec="zstd"))
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 9, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 3000)
    assert (header.compression, header.is_control, header.is_log_append_time) == (4, False, False)


def test_batches_are_found_one_after_the_other() -> None:
    parts = [batch(2, 10), batch(1, 300), batch(5, 0)]
    found = list(iterate_batches(memoryview(b"".join(parts)), WHERE))
    assert [bytes(one.data) for one in found] == parts
    assert [one.header.size for one in found] == [len(part) for part in parts]


@given(st.integers(0, 200))
def test_a_batch_cut_short_is_corrupt(kept: int) -> None:
    good = batch(1, 140)
    if 0 < kept < len(good):
        assert refusal_of(good[:kept]).code == errors_pb2.CORRUPT_MESSAGE


@given(st.integers(21, 160), st.integers(1, 255))
def test_a_changed_byte_under_the_crc_is_corrupt(position: int, change: int) -> None:
    good = batch(1, 140)
    changed = damaged(good, position, bytes([good[position] ^ change]))
    assert refusal_of(changed).code == errors_pb2.CORRUPT_MESSAGE


def test_refusal_names_the_position_and_the_values() -> None:
    good = batch(1, 40)
    error = refusal_of(good + damaged(good, 17, b"\0\0\0\0"))
    assert f"at byte {len(good)}" in error.message
    assert "0x00000000" in error.message


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    error = refusal_of(damaged(batch(), 8, struct.pack(">i", length)))
    assert error.code == errors_pb2.CORRUPT_MESSAGE
    assert str(length) in error.message


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, errors_pb2.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (1, errors_pb2.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (3, errors_pb2.CORRUPT_MESSAGE),
    ],
)
def test_only_magic_2_is_taken(magic: int, code: int) -> None:
    assert refusal_of(damaged(batch(), 16, bytes([magic]))).code == code


def test_an_old_message_shorter_than_a_header_is_told_its_format() -> None:
    old = struct.pack(">qiIbbii", 0, 14, 0, 1, 0, -1, -1)
    assert refusal_of(old).code == errors_pb2.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    ("records", "max_bytes", "code"),
    [
        (batch(1, 500), 400, errors_pb2.MESSAGE_TOO_LARGE),
        (
            assemble(b"x", base_offset=0, last_delta=0, count=1, attributes=5),
            400,
            errors_pb2.UNSUPPORTED_COMPRESSION_TYPE,
        ),
        (
            assemble(b"x", base_offset=0, last_delta=0, count=1, attributes=CONTROL),
            400,
            errors_pb2.INVALID_RECORD,
        ),
        (
            assemble(b"x", base_offset=0, last_delta=0, count=1, attributes=TRANSACTIONAL),
            400,
            errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (batch(producer=(7, 0, -1)), 400, errors_pb2.INVALID_RECORD),
        (batch(producer=(7, -1, 0)), 400, errors_pb2.INVALID_RECORD),
        (assemble(b"x", base_offset=0, last_delta=3, count=3), 400, errors_pb2.INVALID_RECORD),
        (assemble(b"", base_offset=0, last_delta=-1, count=0), 400, errors_pb2.INVALID_RECORD),
    ],
)
def test_what_a_producer_must_not_send(records: bytes, max_bytes: int, code: int) -> None:
    (found,) = iterate_batches(records, WHERE)
    with pytest.raises(KafkaError, match="byte 17") as refused:
        check_produced(found.header, 17, max_bytes, WHERE)
    assert refused.value.code == code


def test_a_replicated_batch_must_continue_the_log() -> None:
    header = read_header(batch(2, base_offset=10))
    check_replicated(header, 0, 10, WHERE)
    for log_end_offset in (9, 11):
        with pytest.raises(KafkaError, match=f"offset 10, this log ends at {log_end_offset}"):
            check_replicated(header, 0, log_end_offset, WHERE)


def test_patching_changes_place_and_epoch_and_nothing_else() -> None:
    records = encode_batch([Record(0), Record(1)], codec="gzip")
    copy = patched(memoryview(records), 1 << 40, LeaderEpoch(9))
    (found,) = iterate_batches(copy, WHERE)
    assert (found.header.base_offset, found.header.leader_epoch) == (1 << 40, 9)
    assert copy[8:12] == records[8:12]
    assert copy[16:] == records[16:]


def mapped(content: bytes) -> memoryview:
    memory = mmap(-1, len(content))
    memory[:] = content
    return memoryview(memory)


@pytest.mark.parametrize("received", [lambda b: memoryview(bytearray(b)), mapped])
def test_a_batch_that_was_received_for_the_log_is_placed_where_it_is(
    received: Callable[[bytes], memoryview],
) -> None:
    records = encode_batch([Record(0), Record(1)])
    request = received(b"header" + records)
    taken = put_in_place(request[6:], 1 << 40, LeaderEpoch(9))
    assert taken == patched(memoryview(records), 1 << 40, LeaderEpoch(9))
    assert request[6:] == taken


def test_memory_that_is_somebody_elses_or_mostly_something_else_is_not_kept() -> None:
    records = encode_batch([Record(0), Record(1)])
    expected = patched(memoryview(records), 1 << 40, LeaderEpoch(9))
    for memory in (memoryview(records), memoryview(bytearray(records + bytes(len(records) + 1)))):
        before = bytes(memory)
        taken = put_in_place(memory[: len(records)], 1 << 40, LeaderEpoch(9))
        assert taken == expected
        assert isinstance(taken, bytes)
        assert memory == before
