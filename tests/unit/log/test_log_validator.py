"""What producers send and Kafka refuses is refused, with Kafka's error code."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.broker.common.errors import InvalidRecords, KafkaError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.log_validator import (
    AT_ONCE,
    IN_A_THREAD,
    LogValidator,
    TooMuchAtOnce,
)
from quorate.broker.log.batches.record_batch import Batch, iterate_batches, read_header
from quorate.broker.log.batches.topic_timestamps import AS_SENT, TopicStorageOptions
from quorate.broker.log.options import Records
from quorate_proto.v1 import errors_pb2
from tests.support.examples import examples
from tests.support.record_batches import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    Record,
    assemble,
    encode_batch,
    plain_records,
)
from tests.support.reference_decoder import Refused, decoded

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
BOUNDED = TopicStorageOptions(before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)
AS_DEFAULT = TopicStorageOptions(after_max_ms=HOUR_MS)
"""The limits of a topic that nobody has configured."""


@dataclass
class Log:
    max_batch_bytes: int = 8 << 20
    needs_keys: bool = False
    storing: TopicStorageOptions = AS_SENT


IN_THREAD = LogValidator(IN_A_THREAD)
OF_THE_LOOP = LogValidator(AT_ONCE)


def validated(records: Records, log: Log, validator: LogValidator = IN_THREAD) -> list[Batch]:
    return validator.validate(records, log, AppendOrigin.CLIENT, NOW_MS, "orders-3")


def refusal(records: Records, log: Log) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        validated(records, log)
    assert "orders-3" in refused.value.message
    return refused.value


def claiming(records: bytes, count: int, attributes: int = 0) -> bytes:
    return assemble(
        records, base_offset=0, last_delta=count - 1, count=count,
        base_timestamp=NOW_MS, max_timestamp=NOW_MS, attributes=attributes,
    )  # fmt: skip


def timed(*times_ms: int, **more: object) -> bytes:
    records = [Record(place, timestamp_ms=time_ms) for place, time_ms in enumerate(times_ms)]
    return encode_batch(records, **more)  # type: ignore[arg-type]


ONE = plain_records(b"value")
REFUSED: dict[str, tuple[bytes, int]] = {
    "garbage with a right checksum": (claiming(b"\xfegarbage", 1), errors_pb2.INVALID_RECORD),
    "zstd that is not": (
        claiming(b"not zstd", 1, attributes=CODECS["zstd"]), errors_pb2.INVALID_RECORD,
    ),
    "gzip that is cut off": (
        claiming(encode_batch([Record(0)], codec="gzip")[61:-1], 1, attributes=CODECS["gzip"]),
        errors_pb2.INVALID_RECORD,
    ),
    "five records claimed and one there": (claiming(ONE, 5), errors_pb2.INVALID_RECORD),
    "five compressed records claimed and one there": (
        claiming(encode_batch([Record(0)], codec="lz4")[61:], 5, attributes=CODECS["lz4"]),
        errors_pb2.INVALID_RECORD,
    ),
    "one record claimed and two there": (
        claiming(plain_records(b"a", b"b"), 1), errors_pb2.INVALID_RECORD,
    ),
    "2^31-1 records claimed and none there": (claiming(b"", 2**31 - 1), errors_pb2.INVALID_RECORD),
    "no records claimed": (claiming(b"", 0), errors_pb2.INVALID_RECORD),
    "offset deltas with gaps": (
        claiming(ONE + encode_batch([Record(0), Record(7)])[-13:], 2), errors_pb2.INVALID_RECORD,
    ),
    "last offset delta and count differ": (
        assemble(ONE, base_offset=0, last_delta=1, count=1), errors_pb2.INVALID_RECORD,
    ),
    "a control batch": (claiming(ONE, 1, attributes=CONTROL), errors_pb2.INVALID_RECORD),
    "a base offset": (encode_batch([Record(5)], base_offset=5), errors_pb2.INVALID_RECORD),
    "codec 5": (claiming(ONE, 1, attributes=5), errors_pb2.UNSUPPORTED_COMPRESSION_TYPE),
    "the time of the broker": (
        timed(NOW_MS, attributes=LOG_APPEND_TIME), errors_pb2.INVALID_TIMESTAMP,
    ),
    "timestamp -2^63": (timed(-(2**63)), errors_pb2.INVALID_TIMESTAMP),
    "timestamps whose sum overflows": (
        assemble(
            encode_batch([Record(0, 0), Record(1, 1)])[61:], base_offset=0, last_delta=1, count=2,
            base_timestamp=2**63 - 1,
        ),
        errors_pb2.INVALID_TIMESTAMP,
    ),
    "more than an hour ahead": (timed(NOW_MS + HOUR_MS + 1), errors_pb2.INVALID_TIMESTAMP),
}  # fmt: skip


@pytest.mark.parametrize("what", list(REFUSED))
def test_kafkas_error_codes(what: str) -> None:
    records, code = REFUSED[what]
    assert refusal(records, Log(storing=AS_DEFAULT)).code == code


def test_the_message_names_the_record_and_what_is_wrong() -> None:
    message = refusal(claiming(ONE, 5), Log()).message
    assert message == (
        f"orders-3: record 1 of a batch of 5, at byte {len(ONE)} of its records, is not there"
    )


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("buffer", [bytes, bytearray])
def test_what_is_right_is_taken_as_it_is(codec: str, buffer: type[bytes | bytearray]) -> None:
    times = (NOW_MS - 10**15, -1, NOW_MS + HOUR_MS, -5)
    sent = timed(*times, codec=codec) + timed(NOW_MS, codec=codec)
    batches = validated(memoryview(buffer(sent)), Log(storing=AS_DEFAULT))
    assert b"".join(bytes(data) for _, data in batches) == sent
    assert batches == list(iterate_batches(sent, ""))


@pytest.mark.parametrize("codec", list(CODECS))
def test_kip_467_records_without_a_key_are_refused_and_named(codec: str) -> None:
    """By their places among all that were sent, whatever batch they are in."""
    first = [Record(0, key=b"a"), Record(1, key=None)]
    second = [Record(0, key=None), Record(1, key=b""), Record(2, key=None)]
    sent = encode_batch(first, codec=codec) + encode_batch(second, codec=codec)
    assert len(validated(sent, Log())) == 2
    refused = refusal(sent, Log(needs_keys=True))
    assert isinstance(refused, InvalidRecords)
    assert refused.code == errors_pb2.INVALID_RECORD
    assert [one.place for one in refused.record_errors] == [1, 2, 4]
    assert "3 of 5 records are refused" in refused.message
    assert "no key" in refused.record_errors[0].message


@pytest.mark.parametrize("codec", list(CODECS))
def test_records_beyond_the_limits_are_refused_and_named(codec: str) -> None:
    sent = timed(NOW_MS, NOW_MS - HOUR_MS, codec=codec)
    sent += timed(NOW_MS - HOUR_MS - 1, NOW_MS - 5, NOW_MS + HOUR_MS + 1, codec=codec)
    refused = refusal(sent, Log(storing=BOUNDED))
    assert isinstance(refused, InvalidRecords)
    assert refused.code == errors_pb2.INVALID_TIMESTAMP
    assert [one.place for one in refused.record_errors] == [2, 4]
    assert f"timestamp {NOW_MS - HOUR_MS - 1} is out of range" in refused.record_errors[0].message


def test_one_wrong_timestamp_gives_the_request_its_code() -> None:
    keyless = encode_batch([Record(0, NOW_MS), Record(1, NOW_MS + 2 * HOUR_MS, b"k")])
    refused = refusal(keyless, Log(needs_keys=True, storing=BOUNDED))
    assert refused.code == errors_pb2.INVALID_TIMESTAMP
    assert isinstance(refused, InvalidRecords)
    assert [one.place for one in refused.record_errors] == [0, 1]


@pytest.mark.parametrize("storing", [AS_SENT, AS_DEFAULT])
def test_times_before_1970_are_taken_as_kafka_takes_them(storing: TopicStorageOptions) -> None:
    (batch,) = validated(timed(-5, -(10**15)), Log(storing=storing))
    assert batch.header.max_timestamp == -1, "as Kafka has it: -1 is no time"


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("claimed", [0, NOW_MS - 1, NOW_MS + 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("buffer", [bytes, bytearray])
def test_the_greatest_timestamp_is_put_right(
    codec: str, claimed: int, buffer: type[bytes | bytearray]
) -> None:
    """As in Kafka: retention and searches go by it."""
    sent = timed(NOW_MS - 7, NOW_MS, NOW_MS - 3, codec=codec)
    header = read_header(sent)
    lie = assemble(
        sent[61:], base_offset=0, last_delta=2, count=3, attributes=header.attributes,
        base_timestamp=header.base_timestamp, max_timestamp=claimed,
    )  # fmt: skip
    (batch,) = validated(memoryview(buffer(lie)), Log(storing=BOUNDED))
    assert batch.header.max_timestamp == NOW_MS
    assert bytes(batch.data) == sent
    assert batch == next(iterate_batches(sent, ""))


@pytest.mark.parametrize("codec", list(CODECS))
def test_log_append_time_is_that_of_all_records(codec: str) -> None:
    sent = timed(NOW_MS - 5 * HOUR_MS, NOW_MS + 5 * HOUR_MS, codec=codec)
    (batch,) = validated(sent, Log(storing=BOUNDED._replace(log_append_time=True)))
    assert batch.header.is_log_append_time
    assert batch.header.max_timestamp == NOW_MS
    assert batch.header.base_timestamp == NOW_MS - 5 * HOUR_MS
    assert bytes(batch.data[61:]) == sent[61:]
    (again,) = iterate_batches(batch.data, "")
    assert again.header == batch.header
    assert not read_header(sent).is_log_append_time, "what was sent is as it was"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_grows_without_an_end_is_refused(codec: str) -> None:
    """A producer that is told so may send smaller ones."""
    bomb = encode_batch([Record(0, value=bytes(6 << 20))], codec=codec)
    limit = AS_SENT._replace(decompressed_max_bytes=4 << 20)
    refused = refusal(bomb, Log(storing=limit))
    assert refused.code == errors_pb2.MESSAGE_TOO_LARGE
    assert "decompress to more than 4194304; send smaller batches" in refused.message
    assert len(IN_THREAD._buffer) == IN_A_THREAD.buffer_bytes, "the memory is given back"
    assert validated(bomb, Log(storing=limit._replace(decompressed_max_bytes=7 << 20)))
    assert len(IN_THREAD._buffer) == IN_A_THREAD.buffer_bytes


def test_a_small_limit_holds_below_the_size_of_the_buffer() -> None:
    limit = AS_SENT._replace(decompressed_max_bytes=1000)
    assert validated(timed(NOW_MS, codec="zstd"), Log(storing=limit))
    sent = encode_batch([Record(0, value=bytes(1000))], codec="zstd")
    assert refusal(sent, Log(storing=limit)).code == errors_pb2.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(CODECS))
def test_little_work_is_done_at_once(codec: str) -> None:
    sent = encode_batch([Record(place) for place in range(50)], codec=codec)
    assert validated(sent, Log(), OF_THE_LOOP) == validated(sent, Log())


@pytest.mark.parametrize(
    "sent",
    [
        encode_batch([Record(place) for place in range(AT_ONCE.steps + 1)]),
        encode_batch([Record(0, headers=(("", b""),) * AT_ONCE.steps)]),
        encode_batch([Record(0, value=bytes(AT_ONCE.buffer_bytes))], codec="lz4"),
        claiming(bytes(AT_ONCE.compressed_bytes + 1), 1, attributes=CODECS["lz4"]),
    ],
    ids=["records", "headers", "decompressed", "compressed"],
)
def test_much_work_is_left_to_a_thread(sent: bytes) -> None:
    with pytest.raises(TooMuchAtOnce):
        validated(sent, Log(), OF_THE_LOOP)


@settings(max_examples=examples(50))
@given(
    st.sampled_from(list(CODECS)),
    st.integers(1, 30),
    st.lists(st.tuples(st.randoms(), st.integers(0, 255)), max_size=2),
)
def test_compressed_records_that_are_changed(
    codec: str, count: int, changes: list[tuple[object, int]]
) -> None:
    """They are refused if and only if the reference decoder refuses them."""
    sent = encode_batch(
        [Record(place, NOW_MS, value=b"v" * place) for place in range(count)], codec=codec
    )
    records = bytearray(sent[61:])
    for chance, byte in changes:
        records[chance.randrange(len(records))] = byte  # type: ignore[attr-defined]
    changed = claiming(bytes(records), count, attributes=CODECS[codec])
    try:
        decoded(bytes(records), count, CODECS[codec], NOW_MS)
    except Refused:
        assert refusal(changed, Log()).code in (
            errors_pb2.INVALID_RECORD, errors_pb2.INVALID_TIMESTAMP,
        )  # fmt: skip
    else:
        assert len(validated(changed, Log())) == 1
