"""The frames of framed streams: what goes in comes out, and no damaged frame is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.streams import packed_codec, protobuf_codec
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.broker.replication.streams.packed_codec import (
    HELLO,
    HELLO_BYTES_MAX,
    REFUSAL,
    REQUEST,
    RESPONSE,
    Hello,
    decode_hello,
    decode_request,
    decode_response,
    encode_hello,
    encode_refusal,
    encode_request,
    encode_response,
    open_frame,
)
from quorate.common.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIPS = st.builds(
    TopicIdPartition, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 2**31 - 1)
)
POSITIONS = st.builds(ReplicaPosition, TIPS, INT32, INT64, INT64, INT64, st.booleans())
REQUESTS = st.builds(
    ReplicaFetchRequest,
    INT32.map(BrokerId),
    INT64.map(BrokerEpoch),
    INT32,
    INT32,
    st.booleans(),
    st.lists(POSITIONS, max_size=5),
)
ORDERS = TopicIdPartition(TopicId(b"orders-orders-or"), 3)
FETCHED = [
    FetchedPartition(ORDERS, 0, 40, 2, 7, 11, (b"one", memoryview(b"and two!"))),
    FetchedPartition(TopicIdPartition(TopicId(b"bills-bills-bill"), 0), 6, 8, 0, 9),
]


def contents(frame: bytes) -> bytes:
    """What follows the length of a frame; the length is right."""
    (length,) = packed_codec.LENGTH.unpack_from(frame)
    assert length == len(frame) - packed_codec.LENGTH.size
    return frame[packed_codec.LENGTH.size :]


def shown(partitions: list[FetchedPartition]) -> list[tuple[object, ...]]:
    """The news, comparable: records in one piece."""
    return [(*each[:-1], b"".join(each.records)) for each in partitions]


@given(REQUESTS)
def test_both_codecs_return_the_request_that_was_sent(request: ReplicaFetchRequest) -> None:
    kind, header, records = open_frame(contents(encode_request(request)))
    assert (kind, len(records)) == (REQUEST, 0)
    assert decode_request(header) == request
    assert protobuf_codec.decode_request(protobuf_codec.encode_request(request)) == request


def test_both_codecs_return_the_response_that_was_sent() -> None:
    kind, header, records = open_frame(contents(b"".join(encode_response(FETCHED))))
    assert kind == RESPONSE
    assert shown(decode_response(header, records)) == shown(FETCHED)
    through_protobuf = protobuf_codec.decode_response(protobuf_codec.encode_response(FETCHED))
    assert shown(through_protobuf) == shown(FETCHED)


def test_the_records_of_a_response_are_not_copied() -> None:
    _, one, two = encode_response(FETCHED)
    assert one is FETCHED[0].records[0]
    assert two is FETCHED[0].records[1]


def test_a_hello_fits_where_strangers_may_send_little() -> None:
    hello = Hello(1, BrokerId(2), BrokerId(1))
    frame = encode_hello(hello)
    assert len(frame) <= HELLO_BYTES_MAX
    kind, header, _ = open_frame(contents(frame))
    assert (kind, decode_hello(header)) == (HELLO, hello)


def test_a_refusal_says_why() -> None:
    kind, header, _ = open_frame(contents(encode_refusal("this is broker 1, not 4")))
    assert (kind, bytes(header)) == (REFUSAL, b"this is broker 1, not 4")


def test_no_flipped_bit_of_a_header_is_believed() -> None:
    request = ReplicaFetchRequest(
        BrokerId(2), BrokerEpoch(9), 500, 1 << 20, False, [ReplicaPosition(ORDERS, 7, 40, 40, 2)]
    )
    frame = contents(encode_request(request))
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFrame):
            open_frame(bytes(damaged))


@pytest.mark.parametrize("frame", [contents(encode_hello(Hello(1, BrokerId(2), BrokerId(1))))])
def test_no_part_of_a_frame_is_believed(frame: bytes) -> None:
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            open_frame(frame[:size])


@pytest.mark.parametrize(
    ("decode", "header"),
    [
        (decode_hello, b""),
        (decode_hello, b"QREP"),
        (decode_hello, b"KREP" + bytes(10)),
        (decode_request, b""),
        (decode_request, bytes(21) + (1).to_bytes(4, "big")),
        (decode_request, bytes(25) + bytes(1)),
    ],
)
def test_a_header_of_the_wrong_size_is_malformed(decode: object, header: bytes) -> None:
    assert callable(decode)
    with pytest.raises(MalformedFrame):
        decode(memoryview(header))


def test_a_response_has_just_the_records_that_it_announces() -> None:
    _, header, records = open_frame(contents(b"".join(encode_response(FETCHED))))
    for wrong in (records[:-1], memoryview(bytes(records) + b"x"), memoryview(b"")):
        with pytest.raises(MalformedFrame):
            decode_response(header, wrong)
    for wrong in (header[:2], header[:-1], memoryview(bytes(header) + b"x")):
        with pytest.raises(MalformedFrame):
            decode_response(wrong, records)
