"""A topic with LogAppendTime goes by the times of its leader."""

from pathlib import Path

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.log_validator import IN_A_THREAD, LogValidator
from quorate.broker.log.batches.record_batch import Batch, iterate_batches
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.log.options import LogAppendInfo
from quorate.broker.log.partition_log import PartitionLog
from tests.support.log_stores import EPOCH, opened
from tests.support.record_batches import Record, encode_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def batch(*ages_ms: int, **more: object) -> bytes:
    """Records of these ages; a negative one is ahead."""
    records = [Record(n, timestamp_ms=NOW_MS - age) for n, age in enumerate(ages_ms)]
    return encode_batch(records, **more)  # type: ignore[arg-type]


def stored(log: PartitionLog) -> list[Batch]:
    chunks = log.read(0, 1 << 20, log.log_end_offset).chunks
    return list(iterate_batches(b"".join(chunks), "t-0"))


def append(log: PartitionLog, records: bytes, now_ms: int) -> LogAppendInfo:
    validator = LogValidator(IN_A_THREAD)
    batches = validator.validate(records, log, AppendOrigin.CLIENT, now_ms, "t-0")
    return log.append_as_leader(batches, EPOCH)


async def test_searches_go_by_the_time_of_the_leader(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True)
        sent = batch(5 * HOUR_MS, -5 * HOUR_MS)
        for now_ms in (NOW_MS, NOW_MS + 1):
            assert append(log, sent, now_ms).log_append_time_ms == now_ms
        assert [found.header.max_timestamp for found in stored(log)] == [NOW_MS, NOW_MS + 1]
        assert log.offset_for_timestamp(NOW_MS + 1, 4) == (2, NOW_MS + 1)


async def test_a_batch_sent_again_has_the_time_of_the_first_try(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True)
        sent = batch(0, 0, producer=(7, 0, 0))
        assert append(log, sent, NOW_MS) == LogAppendInfo(0, 1, NOW_MS)
        append(log, batch(0, 0), NOW_MS + 1)
        assert append(log, sent, NOW_MS + 9) == LogAppendInfo(0, 1, NOW_MS)


async def test_what_coordinators_write_has_their_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.storing = TopicStorageOptions(log_append_time=True, after_max_ms=1)
        log.append_as_leader(batch(-HOUR_MS), EPOCH, AppendOrigin.COORDINATOR)
        (found,) = stored(log)
        assert not found.header.is_log_append_time
