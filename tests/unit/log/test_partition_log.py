"""One partition's log: what goes in, what comes out, and where reads begin and end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.options import Flush, LogAppendInfo
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened
from tests.support.record_batches import Record, encode_batch


@pytest.fixture(params=["sync", "os"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    flush: Flush = request.param
    async with opened(tmp_path, flush) as store:
        yield store


async def test_leader_gives_offsets_and_epoch(open_store: OpenStore) -> None:
    log = open_store.create()
    assert log.append_as_leader(batch(3, timestamp_ms=7), EPOCH) == LogAppendInfo(0, 2)
    assert log.append_as_leader(batch(2, timestamp_ms=5), LeaderEpoch(4)) == LogAppendInfo(3, 4)
    first, second = log.read(0, 1, 3).chunks, log.read(3, 1, 5).chunks
    assert (read_header(first[0]).base_offset, read_header(first[0]).leader_epoch) == (0, 0)
    assert (read_header(second[0]).base_offset, read_header(second[0]).leader_epoch) == (3, 4)
    assert log.leader_epochs.entries == [(0, 0), (4, 3)]


async def test_several_batches_in_one_append_follow_each_other(open_store: OpenStore) -> None:
    log = open_store.create()
    records = batch(3, timestamp_ms=9) + batch(1, timestamp_ms=4) + batch(2)
    assert log.append_as_leader(records, EPOCH) == LogAppendInfo(0, 5)
    assert log.read(5, 1, 6).next_offset == 6


async def test_appended_records_are_readable_at_once_and_flushed_later(
    open_store: OpenStore,
) -> None:
    log = open_store.create()
    log.append_as_leader(batch(), EPOCH)
    assert log.read(0, 1000, 1).size > 0
    assert log.flushed_offset == 0
    assert open_store.flushes == []
    await open_store.until_flushed(log)
    assert log.flushed_offset == 1
    assert open_store.flushes[-1] == [("t", 1)]
    assert open_store.store.writer.pending_bytes == 0


async def test_one_report_for_all_logs_of_a_group(open_store: OpenStore) -> None:
    logs = [open_store.create("t", partition) for partition in range(5)]
    for log in logs * 3:
        log.append_as_leader(batch(), EPOCH)
    await open_store.until_flushed(*logs)
    assert open_store.flushes[-1] == [("t", 3)] * 5


async def test_read_begins_at_the_batch_that_contains_the_offset(open_store: OpenStore) -> None:
    log = open_store.create()
    for _ in range(4):
        log.append_as_leader(batch(10), EPOCH)
    read = log.read(17, 1 << 20, 40)
    assert read_header(read.chunks[0]).base_offset == 10
    assert read.next_offset == 40


async def test_read_ends_below_the_offset_it_may_not_reach(open_store: OpenStore) -> None:
    log = open_store.create()
    for _ in range(3):
        log.append_as_leader(batch(10), EPOCH)
    assert log.read(0, 1 << 20, 30).next_offset == 30
    assert log.read(0, 1 << 20, 29).next_offset == 20
    assert log.read(0, 1 << 20, 9) == ([], 0, 0)
    assert log.read(25, 1 << 20, 29) == ([], 25, 0)
    assert log.read(30, 1 << 20, 30) == ([], 30, 0)


async def test_read_has_no_batch_beyond_the_range_that_is_wanted(open_store: OpenStore) -> None:
    log = open_store.create()
    for _ in range(4):
        log.append_as_leader(batch(10), EPOCH)
    assert log.read(5, 1 << 20, 40, wanted_end=21).next_offset == 30
    assert log.read(5, 1 << 20, 40, wanted_end=20).next_offset == 20
    assert log.read(5, 1 << 20, 40, wanted_end=6).next_offset == 10


@pytest.mark.parametrize("in_memory", [True, False])
async def test_read_takes_whole_batches_and_at_least_one(tmp_path: Path, in_memory: bool) -> None:
    async with opened(tmp_path, tail_bytes=1 << 20 if in_memory else 0) as store:
        log = store.create()
        for seed in range(10):
            log.append_as_leader(batch(1, 5000, seed=seed), EPOCH)
        await store.until_flushed(log)
        size = len(batch(1, 5000))
        for max_bytes, batches in ((0, 1), (size - 1, 1), (2 * size - 1, 1), (2 * size, 2)):
            read = log.read(3, max_bytes, 10)
            assert (read.next_offset, read.size) == (3 + batches, batches * size)
            assert sum(map(len, read.chunks)) == read.size


@pytest.mark.parametrize("offset", [-1, 3])
async def test_read_outside_the_log_names_what_there_is(open_store: OpenStore, offset: int) -> None:
    log = open_store.create("orders", 7)
    log.append_as_leader(batch(2), EPOCH)
    with pytest.raises(KafkaError, match=rf"orders-7: offset {offset} .*\[0, 2\)") as refused:
        log.read(offset, 1, 2)
    assert refused.value.code == errors_pb2.OFFSET_OUT_OF_RANGE


async def test_small_batches_come_as_one_piece(open_store: OpenStore) -> None:
    log = open_store.create()
    for _ in range(100):
        log.append_as_leader(batch(1, 50), EPOCH)
    read = log.read(0, 1 << 20, 100)
    assert [len(chunk) for chunk in read.chunks] == [read.size]


@pytest.mark.parametrize("size", [(256 << 10) - 77, (256 << 10) - 76, 256 << 10, 3 << 20])
async def test_batches_around_and_above_256_kib(tmp_path: Path, size: int) -> None:
    async with opened(tmp_path, tail_bytes=0) as store:
        log = store.create()
        for seed in range(3):
            log.append_as_leader(batch(1, size, seed=seed), EPOCH)
        written = everything(log)
        await store.until_flushed(log)
        assert len(store.store.reads.tail) == 0
        assert everything(log) == written
        assert log.read(1, 1, 3).size == len(batch(1, size))
    async with opened(tmp_path) as store:
        assert everything(store.log()) == written


CORRUPT = batch()[:-1] + b"\1"


@pytest.mark.parametrize("records", [CORRUPT, batch() + CORRUPT, batch() + batch()[:70], b""])
async def test_corrupt_batch_appends_nothing(open_store: OpenStore, records: bytes) -> None:
    log = open_store.create()
    log.append_as_leader(batch(), EPOCH)
    with pytest.raises(KafkaError, match="t-0"):
        log.append_as_leader(records, LeaderEpoch(1))
    with pytest.raises(KafkaError, match="t-0"):
        log.append_as_follower(records)
    assert log.log_end_offset == 1
    assert log.leader_epochs.entries == [(0, 0)]


async def test_batch_above_the_limit_of_the_topic_is_refused(open_store: OpenStore) -> None:
    log = open_store.create()
    log.max_batch_bytes = 400
    with pytest.raises(KafkaError, match="561 bytes, at most 400") as refused:
        log.append_as_leader(batch(1, 500), EPOCH)
    assert refused.value.code == errors_pb2.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


async def test_follower_appends_what_the_leader_wrote_byte_for_byte(
    open_store: OpenStore,
) -> None:
    leader, follower = open_store.create("t", 0), open_store.create("t", 1)
    leader.append_as_leader(batch(3) + batch(2), EPOCH)
    leader.append_as_leader(batch(4), LeaderEpoch(2))
    appended = follower.append_as_follower(everything(leader))
    assert appended == LogAppendInfo(0, 8)
    assert everything(follower) == everything(leader)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == [(0, 0), (2, 5)]


@pytest.mark.parametrize("base_offset", [0, 2, 4])
async def test_follower_append_must_continue_the_log(
    open_store: OpenStore, base_offset: int
) -> None:
    log = open_store.create()
    log.append_as_follower(batch(3))
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(batch(2, base_offset=base_offset))
    assert refused.value.code == errors_pb2.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.append_as_follower(batch(2, base_offset=3) + batch(1, base_offset=6))
    assert log.log_end_offset == 3
    log.append_as_follower(batch(2, base_offset=3))
    assert log.log_end_offset == 5


async def test_what_a_follower_appended_does_not_change_with_the_buffer(
    open_store: OpenStore,
) -> None:
    log = open_store.create()
    buffer = bytearray(batch())
    log.append_as_follower(memoryview(buffer))
    before = everything(log)
    buffer[70:] = bytes(len(buffer) - 70)
    assert everything(log) == before


async def test_offset_for_timestamp_finds_the_record_in_its_batch(open_store: OpenStore) -> None:
    log = open_store.create()
    for start in (1000, 9000, 5000, 20_000):
        records = [Record(delta, start + delta * 10) for delta in range(5)]
        log.append_as_leader(encode_batch(records, codec="lz4"), EPOCH)
    assert log.offset_for_timestamp(0, 20) == (0, 1000)
    assert log.offset_for_timestamp(1011, 20) == (2, 1020)
    assert log.offset_for_timestamp(1041, 20) == (5, 9000)
    assert log.offset_for_timestamp(9041, 20) == (15, 20_000)
    assert log.offset_for_timestamp(9041, 15) is None
    assert log.offset_for_timestamp(20_041, 20) is None
    assert log.offset_for_timestamp(20_040, 19) is None


async def test_kip_734_offset_of_the_greatest_timestamp(open_store: OpenStore) -> None:
    log = open_store.create()
    assert log.offset_of_max_timestamp(0) is None
    for start in (1000, 9000, 5000, 20_000):
        records = [Record(delta, start + abs(delta - 3) * -10) for delta in range(5)]
        log.append_as_leader(encode_batch(records, codec="lz4"), EPOCH)
    assert log.offset_of_max_timestamp(20) == (18, 20_000)
    assert log.offset_of_max_timestamp(15) == (8, 9000)
    assert log.offset_of_max_timestamp(5) == (3, 1000)
    assert log.offset_of_max_timestamp(0) is None


@pytest.mark.parametrize(
    ("log_start", "greatest"), [(8, (8, 9000)), (9, (9, 8990)), (10, (13, 5000)), (14, (14, 4990))]
)
async def test_kip_734_records_that_are_deleted_have_no_timestamps(
    open_store: OpenStore, log_start: int, greatest: tuple[int, int]
) -> None:
    """Not even where the greatest of all that were ever written is known no more."""
    log = open_store.create()
    for start in (30_000, 9000, 5000):
        records = [Record(delta, start + abs(delta - 3) * -10) for delta in range(5)]
        log.append_as_leader(encode_batch(records), EPOCH)
    await open_store.until_flushed(log)
    await log.start_at(log_start)
    assert log.offset_of_max_timestamp(15) == greatest


async def test_truncation_cuts_at_batches(open_store: OpenStore) -> None:
    log = open_store.create()
    for epoch in range(4):
        log.append_as_leader(batch(10), LeaderEpoch(epoch))
    await log.truncate_to(40)
    assert log.log_end_offset == 40
    await log.truncate_to(30)
    assert (log.log_end_offset, log.flushed_offset) == (30, 30)
    await log.truncate_to(15)
    assert (log.log_end_offset, log.flushed_offset) == (10, 10)
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.append_as_leader(batch(1), LeaderEpoch(9)).base_offset == 10
    await open_store.until_flushed(log)
    assert log.flushed_offset == 11


async def test_truncation_below_the_start_is_refused(open_store: OpenStore) -> None:
    log = open_store.create()
    await log.truncate_fully_and_start_at(100)
    with pytest.raises(KafkaError, match="starts at 100"):
        await log.truncate_to(99)


async def test_a_log_can_start_afresh_anywhere(open_store: OpenStore) -> None:
    log = open_store.create()
    log.append_as_leader(batch(10), EPOCH)
    await log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.flushed_offset, log.log_end_offset) == (1000, 1000, 1000)
    assert log.leader_epochs.entries == []
    assert log.append_as_leader(batch(10), EPOCH).base_offset == 1000
    assert log.read(1005, 1, 1010).next_offset == 1010


async def test_a_truncated_batch_never_counts_as_flushed(open_store: OpenStore) -> None:
    log = open_store.create()
    log.append_as_leader(batch(10), EPOCH)
    log.append_as_leader(batch(10), EPOCH)
    truncated = log.truncate_to(10)
    await truncated
    assert log.flushed_offset == 10
    assert open_store.store.writer.pending_bytes == 0


async def test_d3_a_log_that_begins_later_has_nothing_below(open_store: OpenStore) -> None:
    log = open_store.create()
    for _ in range(4):
        log.append_as_leader(batch(10), EPOCH)
    await open_store.until_flushed(log)
    await log.start_at(25)
    assert (log.log_start_offset, log.log_end_offset) == (25, 40)
    with pytest.raises(KafkaError, match=r"offset 24 is outside the log, which has \[25, 40\)"):
        log.read(24, 1 << 20, 40)
    assert log.read(25, 1 << 20, 40).next_offset == 40
    assert log.leader_epochs.entries == [(EPOCH, 25)]
    assert log.size_bytes == 2 * len(batch(10))
    await log.start_at(7)
    assert log.log_start_offset == 25, "it never begins earlier again"
    log.append_as_leader(batch(10), EPOCH)
    with pytest.raises(KafkaError, match="cannot begin at 50, it is durable up to 40"):
        await log.start_at(50)


async def test_d3_segments_of_which_nothing_is_left_are_unlinked(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=1 << 20) as open_store:
        log = open_store.create()
        for _ in range(8):
            log.append_as_leader(batch(1, 600_000), EPOCH)
            await open_store.until_flushed(log)
        before = len(list(tmp_path.glob("segment-*.mdb")))
        await log.start_at(8)
        await open_store.store.housekeeping.idle()
        assert len(list(tmp_path.glob("segment-*.mdb"))) < before
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (8, 8, 0)
    async with opened(tmp_path, segment_bytes=1 << 20) as open_store:
        log = open_store.log()
        assert (log.log_start_offset, log.log_end_offset) == (8, 8)
        assert log.append_as_leader(batch(1), EPOCH).base_offset == 8
