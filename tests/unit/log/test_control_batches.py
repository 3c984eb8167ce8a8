"""Transaction markers as Kafka writes them, and control batches that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.batches.control_batches import EndMarker, decode_marker, encode_marker
from quorate.broker.log.batches.record_batch import HEADER_BYTES, Batch, iterate_batches, patched
from quorate.common.types import LeaderEpoch
from tests.support.record_batches import CONTROL, TRANSACTIONAL, Record, assemble, encode_batch

COMMIT_OF_KAFKA = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000042"  # length
    "ffffffff"  # leader epoch
    "02"  # magic
    "00000000"  # CRC, which is not compared
    "0030"  # transactional, control
    "00000000"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56800"  # max timestamp
    "0000000000000007"  # producer id
    "0002"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # records
    "20"  # the record's length: 16
    "00000008"  # attributes, timestamp and offset delta, key length: 4
    "00000001"  # version 0, commit
    "0c"  # value length: 6
    "000000000005"  # version 0, coordinator epoch 5
    "00"  # headers
)


def one(data: bytes) -> Batch:
    (found,) = iterate_batches(data, "orders-3")
    return found


def test_kip_98_a_marker_is_what_kafka_writes() -> None:
    encoded = encode_marker(EndMarker(7, 2, True, 5), 1_700_000_000_000)
    assert encoded[:17] == COMMIT_OF_KAFKA[:17]
    assert encoded[21:] == COMMIT_OF_KAFKA[21:]


@given(
    marker=st.builds(
        EndMarker,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.booleans(),
        st.integers(-1, 2**31 - 1),
    ),
    timestamp_ms=st.integers(0, 2**62),
)
def test_a_marker_is_read_as_it_was_written(marker: EndMarker, timestamp_ms: int) -> None:
    header, data = one(encode_marker(marker, timestamp_ms))
    assert decode_marker(header, data) == marker
    assert decode_marker(header, patched(data, 77, LeaderEpoch(3))) == marker
    assert (header.is_control, header.is_transactional) == (True, True)
    assert header.max_timestamp == timestamp_ms


@given(place=st.integers(0, 16), byte=st.integers(0, 255), committed=st.booleans())
def test_what_is_not_quite_as_usual_is_read_as_any_record_is(
    place: int, byte: int, committed: bool
) -> None:
    header, data = one(encode_marker(EndMarker(7, 2, committed, 5), 1000))
    changed = bytearray(data)
    changed[HEADER_BYTES + place] = byte
    # No marker is one of two records, so nothing is taken for what it usually is.
    as_any = decode_marker(header._replace(record_count=2), bytes(changed))
    assert decode_marker(header, bytes(changed)) == as_any


@pytest.mark.parametrize(
    "data",
    [
        encode_batch([Record(0, key=b"\0\0\0\2", value=b"leader change")], attributes=CONTROL),
        encode_batch([Record(0, key=b"\0", value=b"\0" * 6)], attributes=CONTROL),
        encode_batch([Record(0, key=None)], attributes=CONTROL),
        encode_batch([Record(0, key=b"\0\0\0\1", value=None)], attributes=CONTROL),
        encode_batch([Record(0, key=b"\0\0\0\1", value=b"\0\0")], attributes=CONTROL),
        assemble(b"", base_offset=0, last_delta=0, count=0, attributes=CONTROL | TRANSACTIONAL),
        assemble(b"\xff" * 20, base_offset=0, last_delta=0, count=1, attributes=CONTROL),
    ],
    ids=["leader change", "short key", "no key", "no value", "short value", "emptied", "garbage"],
)
def test_what_ends_no_transaction_is_passed_over_by_all_replicas_alike(data: bytes) -> None:
    assert decode_marker(*one(data)) is None
