"""Times of records as a topic wants them: their producer's within bounds, or their leader's."""

from pathlib import Path

import pytest

from quorate.broker.common.errors import InvalidRecords, KafkaError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.record_batch import Batch, iterate_batches, read_header
from quorate.broker.log.batches.topic_timestamps import (
    AS_SENT,
    TopicStorageOptions,
    with_topic_timestamps,
)
from quorate.broker.log.options import LogAppendInfo
from quorate.broker.log.partition_log import PartitionLog
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, opened
from tests.support.record_batches import CODECS, LOG_APPEND_TIME, Record, encode_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
BOUNDED = TopicStorageOptions(before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)


def batch(*ages_ms: int, codec: str = "none", **more: object) -> bytes:
    """Records of these ages; a negative one is ahead."""
    records = [Record(n, timestamp_ms=NOW_MS - age) for n, age in enumerate(ages_ms)]
    return encode_batch(records, codec=codec, **more)  # type: ignore[arg-type]


def batches(records: bytes | bytearray) -> list[Batch]:
    return list(iterate_batches(memoryview(records), "t-0"))


def stored(log: PartitionLog) -> list[Batch]:
    chunks = log.read(0, 1 << 20, log.log_end_offset).chunks
    return batches(b"".join(chunks))


def refusal(records: bytes, storing: TopicStorageOptions) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        with_topic_timestamps(batches(records), storing, NOW_MS, "t-0")
    assert "t-0" in refused.value.message
    return refused.value


@pytest.mark.parametrize("codec", list(CODECS))
def test_records_beyond_the_bounds_are_refused_and_named(codec: str) -> None:
    sent = batch(0, HOUR_MS, codec=codec) + batch(HOUR_MS + 1, 5, -HOUR_MS - 1, codec=codec)
    refused = refusal(sent, BOUNDED)
    assert isinstance(refused, InvalidRecords)
    assert refused.code == errors_pb2.INVALID_TIMESTAMP
    assert [one.place for one in refused.record_errors] == [2, 4]
    old, new = (one.message for one in refused.record_errors)
    assert f"{HOUR_MS + 1} ms old" in old
    assert f"{HOUR_MS + 1} ms ahead" in new


@pytest.mark.parametrize(
    "storing",
    [
        TopicStorageOptions(before_max_ms=HOUR_MS),
        TopicStorageOptions(after_max_ms=HOUR_MS),
        BOUNDED,
        AS_SENT,
    ],
)
def test_records_within_the_bounds_are_taken_as_they_are(storing: TopicStorageOptions) -> None:
    sent = batches(batch(HOUR_MS, 0, -HOUR_MS))
    assert with_topic_timestamps(sent, storing, NOW_MS, "t-0") is sent


def test_records_without_a_time_are_within_all_bounds() -> None:
    sent = batches(encode_batch([Record(0, timestamp_ms=-1), Record(1, timestamp_ms=NOW_MS)]))
    assert with_topic_timestamps(sent, BOUNDED, NOW_MS, "t-0") is sent


def test_a_header_may_not_claim_what_no_record_has() -> None:
    """The log goes by it."""
    (ahead,) = batches(batch(-HOUR_MS - 1))
    lie = Batch(ahead.header, batches(batch(0))[0].data)
    with pytest.raises(InvalidRecords) as refused:
        with_topic_timestamps([lie], BOUNDED, NOW_MS, "t-0")
    assert [one.place for one in refused.value.record_errors] == [0]


def test_what_must_be_looked_at_and_cannot_be_is_refused() -> None:
    (whole,) = batches(batch(0))
    broken = Batch(whole.header._replace(record_count=9), whole.data)
    with pytest.raises(KafkaError) as refused:
        with_topic_timestamps([broken], BOUNDED, NOW_MS, "t-0")
    assert refused.value.code == errors_pb2.INVALID_RECORD


@pytest.mark.parametrize("storing", [AS_SENT, TopicStorageOptions(log_append_time=True)])
def test_a_producer_may_not_speak_for_its_broker(storing: TopicStorageOptions) -> None:
    refused = refusal(batch(0, attributes=LOG_APPEND_TIME), storing)
    assert refused.code == errors_pb2.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("buffer", [bytes, bytearray])
async def test_log_append_time_is_that_of_all_records(
    tmp_path: Path, codec: str, buffer: type[bytes | bytearray]
) -> None:
    """Whether the batch may be changed where it is or not, and with a CRC that is right."""
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True)
        sent = batch(5 * HOUR_MS, -5 * HOUR_MS, codec=codec)
        for now_ms in (NOW_MS, NOW_MS + 1):
            appended = log.append_as_leader(memoryview(buffer(sent)), EPOCH, now_ms=now_ms)
            assert appended.log_append_time_ms == now_ms
        for found, now_ms in zip(stored(log), (NOW_MS, NOW_MS + 1), strict=True):
            assert found.header.is_log_append_time
            assert found.header.max_timestamp == now_ms
            assert found.header.base_timestamp == NOW_MS - 5 * HOUR_MS
            assert found.header.compression == CODECS[codec]
            assert bytes(found.data[61:]) == sent[61:]
        assert log.offset_for_timestamp(NOW_MS + 1, 4) == (2, NOW_MS + 1)
        assert read_header(sent).max_timestamp == NOW_MS + 5 * HOUR_MS, "what was sent is as it was"


async def test_a_batch_sent_again_has_the_time_of_the_first_try(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True)
        sent = batch(0, 0, producer=(7, 0, 0))
        assert log.append_as_leader(sent, EPOCH, now_ms=NOW_MS) == LogAppendInfo(0, 1, NOW_MS)
        log.append_as_leader(batch(0, 0), EPOCH, now_ms=NOW_MS + 1)
        assert log.append_as_leader(sent, EPOCH, now_ms=NOW_MS + 9) == LogAppendInfo(0, 1, NOW_MS)


async def test_what_coordinators_write_has_their_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True, after_max_ms=1)
        log.append_as_leader(batch(-HOUR_MS), EPOCH, AppendOrigin.COORDINATOR, NOW_MS)
        (found,) = stored(log)
        assert not found.header.is_log_append_time
