"""The decoder of usual Produce requests agrees with the one that knows them all."""

from uuid import UUID

import pytest

from quorate.broker.kafka.records.produce_messages import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    ProduceRequest,
    decode,
    decode_small,
)
from quorate.broker.kafka.wire.primitives import Cursor, MalformedRequest, at_once
from quorate.common.types import TopicId
from tests.support.kafka_wire import Values, by_topic_ids, producing, record_batch, request_body

PRODUCE = 0
TOPIC_IDS = {"t": UUID(int=7), "t" * 200: UUID(int=8)}
USUAL = {
    "one batch": producing(record_batch()),
    "several partitions": producing(record_batch(), record_batch(9), record_batch(1)),
    "lengths of two bytes": producing(record_batch(1, bytes(1_000))),
    "lengths of three bytes": producing(record_batch(1, bytes(20_000)), record_batch()),
    "no topics": {**producing(), "topic_data": []},
}
UNUSUAL = {
    "a transaction": producing(record_batch(), transactional_id="t"),
    "null records": producing(None),
    "lengths of four bytes": producing(record_batch(1, bytes(3 << 20))),
    "many partitions": producing(*[b"x"] * 200),
    "a long name": {
        **producing(),
        "topic_data": [
            {"name": "t" * 200, "partition_data": [{"index": 0, "records": record_batch()}]}
        ],
    },
}


def body(version: int, values: Values) -> bytes:
    named = by_topic_ids(values, TOPIC_IDS) if version >= FIRST_VERSION_WITH_TOPIC_IDS else values
    return request_body(PRODUCE, version, named)


def cursor(version: int, values: Values) -> Cursor:
    return Cursor(memoryview(bytearray(body(version, values))))


def known(version: int, values: Values) -> ProduceRequest:
    return at_once(decode(version, cursor(version, values)))


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
@pytest.mark.parametrize("name", USUAL)
def test_usual_requests_are_read_alike(version: int, name: str) -> None:
    reading = cursor(version, USUAL[name])
    assert decode_small(version, reading) == known(version, USUAL[name])
    assert reading.offset == reading.size
    whole = cursor(version, USUAL[name])
    at_once(decode(version, whole))
    assert reading.elements == whole.elements


def test_version_13_names_topics_by_their_ids() -> None:
    (topic,) = known(13, USUAL["one batch"]).topics
    assert topic == (TopicId(UUID(int=7).bytes), [(0, memoryview(record_batch()))])


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_requests_are_left_to_the_other_decoder(name: str) -> None:
    reading = cursor(9, UNUSUAL[name])
    assert decode_small(9, reading) is None
    assert (reading.offset, reading.elements) == (0, 0)
    assert at_once(decode(9, reading)) == known(9, UNUSUAL[name])


def test_older_versions_and_too_many_elements_are_left_to_the_other_decoder() -> None:
    assert decode_small(8, cursor(8, USUAL["one batch"])) is None
    reading = cursor(9, USUAL["several partitions"])
    reading.elements_max = 2
    assert decode_small(9, reading) is None


@pytest.mark.parametrize("version", [9, 13])
def test_whatever_is_cut_off_or_changed_is_read_alike_or_refused(version: int) -> None:
    whole = body(version, producing(record_batch(1, b"v"), record_batch(2, b"w")))
    cut = [whole[:size] for size in range(len(whole))]
    changed = [
        whole[:at] + bytes([value]) + whole[at + 1 :]
        for at in [*range(40), *range(len(whole) - 20, len(whole))]
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF)
    ]
    for each in [*cut, *changed]:
        small = decode_small(version, Cursor(memoryview(bytearray(each))))
        if small is not None:
            assert small == at_once(decode(version, Cursor(memoryview(bytearray(each)))))
    with pytest.raises(MalformedRequest):
        at_once(decode(version, Cursor(memoryview(bytearray(cut[-1])))))
