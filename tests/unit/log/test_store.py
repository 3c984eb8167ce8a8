"""The store as a whole: reopening, sealing, truncating across segments, deleting, failing."""

import asyncio
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import log_manager as store_module
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.options import Flush
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.writing.log_writer import FEW_BATCHES
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened

SEGMENT_BYTES = 256 << 10
FLUSHES: list[Flush] = ["sync", "os"]


def segment_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("segment-*.mdb"))


async def fill(store: OpenStore, topic: str = "t", *, segments: int) -> None:
    """Append to the log of ``topic``, one flush per batch, until that many segments were begun."""
    log = store.log(topic)
    first = store.store.segments.newest.id
    while store.store.segments.newest.id < first + segments:
        epoch = LeaderEpoch(log.log_end_offset // 10)
        log.append_as_leader(batch(5, 20_000, seed=log.log_end_offset), epoch)
        await store.until_flushed(log)


@pytest.mark.parametrize("flush", FLUSHES)
async def test_d3_partition_logs_are_lmdb_environments(tmp_path: Path, flush: Flush) -> None:
    async with opened(tmp_path, flush) as store:
        log = store.create()
        log.append_as_leader(batch(3), EPOCH)
        await store.until_flushed(log)
        written = everything(log)
    (file,) = segment_files(tmp_path)
    with (
        lmdb.open(str(tmp_path / file), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        assert transaction.get(struct.pack(">IQH", 0, 0, 0)) == written


async def test_rule_7_when_a_partition_was_assigned_is_known_after_a_restart(
    tmp_path: Path,
) -> None:
    tip = TopicIdPartition(TopicId(b"t" * 16), 0)
    async with opened(tmp_path) as store:
        store.store.create(tip, "t", assigned_at=77)
    async with opened(tmp_path) as store:
        assert store.store.create(tip, "t", assigned_at=99).assigned_at == 77


@pytest.mark.parametrize("flush", FLUSHES)
async def test_everything_is_there_after_a_restart(tmp_path: Path, flush: Flush) -> None:
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        log = store.create("orders", 4)
        other = store.create("orders", 5)
        for number in range(60):
            log.append_as_leader(batch(3, 10_000, seed=number), LeaderEpoch(number // 20))
            other.append_as_leader(batch(1, 50, seed=number), LeaderEpoch(7))
            await store.until_flushed(log, other)
        store.store.checkpoint_high_watermarks({log.tip: 150, other.tip: 10**9})
        before = everything(log), everything(other)
        assert len(segment_files(tmp_path)) > 2
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        assert not store.store.log_may_be_lost
        log, other = store.log("orders", 4), store.log("orders", 5)
        assert (everything(log), everything(other)) == before
        assert (log.log_start_offset, log.flushed_offset, log.log_end_offset) == (0, 180, 180)
        assert log.leader_epochs.entries == [(0, 0), (1, 60), (2, 120)]
        assert (log.checkpointed_high_watermark, other.checkpointed_high_watermark) == (150, 60)
        assert log.append_as_leader(batch(), LeaderEpoch(3)).base_offset == 180
        await store.until_flushed(log)


async def test_an_empty_folder_counts_as_a_loss_until_that_was_handled(tmp_path: Path) -> None:
    for _ in range(2):
        async with opened(tmp_path, new_folder_is_loss=True) as store:
            assert store.store.log_may_be_lost
    async with opened(tmp_path) as store:
        store.store.loss_handled()
        assert not store.store.log_may_be_lost
    async with opened(tmp_path) as store:
        assert not store.store.log_may_be_lost


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("offset", [0, 5, 42])
async def test_truncated_batches_in_sealed_segments_stay_away(
    tmp_path: Path, flush: Flush, offset: int
) -> None:
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await fill(store, segments=4)
        log = store.log()
        await log.truncate_to(offset)
        kept, epochs = everything(log), log.leader_epochs.entries
        assert log.log_end_offset == offset // 5 * 5
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        log = store.log()
        assert (everything(log), log.leader_epochs.entries) == (kept, epochs)
        assert not store.store.log_may_be_lost
        for number in range(30):
            log.append_as_leader(batch(5, 20_000, seed=number), LeaderEpoch(50))
            await store.until_flushed(log)
        again = everything(log)
        await log.truncate_to(log.log_end_offset - 5)
        shorter = everything(log)
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log()) == shorter
        assert again.startswith(shorter)


async def test_a_fresh_start_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await fill(store, segments=2)
        await store.log().truncate_fully_and_start_at(5000)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        log = store.log()
        assert (log.log_start_offset, log.log_end_offset) == (5000, 5000)
        assert log.checkpointed_high_watermark == 5000
        log.append_as_leader(batch(2), EPOCH)
        await store.until_flushed(log)
    async with opened(tmp_path) as store:
        assert store.log().log_end_offset == 5002


@pytest.mark.parametrize("flush", FLUSHES)
async def test_a_crash_inside_a_truncation_leaves_no_hole(
    tmp_path: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await fill(store, segments=3)
        log = store.log()
        complete = everything(log)
        with monkeypatch.context() as patch:
            patch.setattr(StoreTable, "record_truncations", fail)
            with pytest.raises(KafkaError):
                await log.truncate_to(10)
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        found = everything(store.log())
        assert 0 < len(found) < len(complete)
        assert complete.startswith(found)
        assert not store.store.log_may_be_lost


def fail(*_: object) -> None:
    raise lmdb.DiskError("mdb_txn_commit: injected")


@pytest.mark.parametrize("flush", FLUSHES)
async def test_c5_a_deleted_log_leaves_no_data(tmp_path: Path, flush: Flush) -> None:
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        await store.store.relocator.close()  # It would have `kept` written elsewhere, some time.
        kept, doomed = store.create("kept"), store.create("doomed")
        kept.append_as_leader(batch(), EPOCH)
        await fill(store, "doomed", segments=3)
        files = segment_files(tmp_path)
        await store.store.delete(doomed.tip)
        await store.store.delete(doomed.tip)
        await store.store.housekeeping.idle()
        assert doomed.tip not in store.store.logs
        # The first segment also holds `kept`, the last one is still being written.
        assert segment_files(tmp_path) == [files[0], *files[3:]]
        with pytest.raises(KafkaError, match="deleted"):
            doomed.append_as_leader(batch(), EPOCH)
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        assert [log.topic for log in store.store.logs.values()] == ["kept"]
        assert everything(store.log("kept")) != b""
        assert not store.store.log_may_be_lost


async def test_a_topic_of_the_same_name_begins_empty(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        old = store.create("orders")
        old.append_as_leader(batch(9), EPOCH)
        await store.store.delete(old.tip)
        new = store.create("orders")
        assert new.log_end_offset == 0
        assert new.number > old.number
        assert store.store.create(new.tip, "orders") is new
        new.append_as_leader(batch(2), EPOCH)
        await store.until_flushed(new)
        expected = everything(new)
    async with opened(tmp_path) as store:
        assert everything(store.log("orders")) == expected
        assert store.create("another").number > new.number


async def test_deleting_with_batches_on_their_way_acknowledges_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_leader(batch(), EPOCH)
        await store.store.delete(log.tip)
        assert store.store.writer.pending_bytes == 0
        assert len(store.store.reads.tail) == 0
        assert store.flushes == []


async def test_the_tail_lets_go_of_the_oldest_flushed_batches_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, tail_bytes=10_000) as store:
        log = store.create()
        for seed in range(20):
            log.append_as_leader(batch(1, 2000, seed=seed), EPOCH)
        assert store.store.reads.tail.bytes > 10_000
        expected = everything(log)
        await store.until_flushed(log)
        assert store.store.reads.tail.bytes <= 10_000
        assert everything(log) == expected


async def test_wait_for_room_returns_when_enough_is_flushed(tmp_path: Path) -> None:
    async with opened(tmp_path, max_pending_bytes=5000) as store:
        log = store.create()
        await store.store.writer.wait_for_room()
        for _ in range(10):
            log.append_as_leader(batch(1, 1000), EPOCH)
        waiting = asyncio.create_task(store.store.writer.wait_for_room())
        assert store.store.writer.pending_bytes >= 5000
        await waiting
        assert store.store.writer.pending_bytes < 5000


@pytest.mark.parametrize("flush", FLUSHES)
async def test_wait_for_flush_returns_when_the_log_is_durable_so_far(
    tmp_path: Path, flush: Flush
) -> None:
    async with opened(tmp_path, flush) as store:
        log, writer = store.create(), store.store.writer
        await writer.wait_for_flush(log, 0)
        log.append_as_leader(batch(2), EPOCH)
        await asyncio.wait_for(writer.wait_for_flush(log, 2), 30)
        assert log.flushed_offset == 2


async def test_wait_for_flush_ends_with_the_log(tmp_path: Path) -> None:
    """The topic of a replica that is being moved may be deleted. Other moves wait behind it."""
    async with opened(tmp_path) as store:
        log, other, writer = store.create(), store.create("other"), store.store.writer
        log.append_as_leader(batch(2), EPOCH)
        waiting = asyncio.create_task(writer.wait_for_flush(log, 2))
        await asyncio.gather(asyncio.create_task(store.store.delete(log.tip)))
        other.append_as_leader(batch(2), EPOCH)
        await writer.settle()
        await asyncio.wait_for(waiting, 10)


async def test_wait_for_flush_ends_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        log, writer = store.create(), store.store.writer
        monkeypatch.setattr(Segment, "append", fail)
        log.append_as_leader(batch(), EPOCH)
        for _ in range(2):
            with pytest.raises(KafkaError, match="injected"):
                await asyncio.wait_for(writer.wait_for_flush(log, 1), 30)
        assert store.failures


@pytest.mark.parametrize("flush", FLUSHES)
async def test_large_requests_append_while_few_batches_wait(tmp_path: Path, flush: Flush) -> None:
    async with opened(tmp_path, flush) as store:
        log, writer = store.create(), store.store.writer
        for _ in range(FEW_BATCHES):
            log.append_as_leader(batch(), EPOCH)
        await writer.turns.wait()
        assert writer.pending_batches == FEW_BATCHES, "nothing was waited for"
        log.append_as_leader(batch(), EPOCH)
        held_up = writer.turns.wait()
        assert held_up.send(None) is writer.turns.waiting[0]
        held_up.close()
        await asyncio.wait_for(writer.turns.wait(), 30)
        assert writer.pending_batches <= FEW_BATCHES
        await store.until_flushed(log)
        assert writer.pending_batches == 0


async def test_large_requests_do_not_wait_for_a_disk_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their appends are refused, as they are to be told."""
    async with opened(tmp_path) as store:
        log, writer = store.create(), store.store.writer
        monkeypatch.setattr(Segment, "append", fail)
        for _ in range(FEW_BATCHES + 1):
            log.append_as_leader(batch(), EPOCH)
        waiting = [asyncio.ensure_future(writer.turns.wait()) for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert store.failures
        await asyncio.wait_for(writer.turns.wait(), 1)


@pytest.mark.parametrize("flush", FLUSHES)
async def test_after_a_disk_failure_nothing_is_acknowledged_and_reads_go_on(
    tmp_path: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, flush, max_pending_bytes=100) as store:
        log = store.create()
        log.append_as_leader(batch(), EPOCH)
        await store.until_flushed(log)
        written = everything(log)
        monkeypatch.setattr(Segment, "append", fail)
        log.append_as_leader(batch(), EPOCH)
        with pytest.raises(KafkaError, match="injected"):
            await store.store.writer.wait_for_room()
        assert "injected" in str(await store.until_failed())
        assert log.flushed_offset == 1
        for refused in (
            lambda: log.append_as_leader(batch(), EPOCH),
            lambda: log.append_as_follower(batch(base_offset=2)),
            store.create,
        ):
            with pytest.raises(KafkaError, match=str(tmp_path)) as refusal:
                refused()
            assert refusal.value.code == errors_pb2.KAFKA_STORAGE_ERROR
        for waited in (log.truncate_to(0), store.store.delete(log.tip)):
            with pytest.raises(KafkaError):
                await waited
        assert b"".join(log.read(0, 1, 1).chunks) == written
    assert len(store.failures) == 1
    async with opened(tmp_path, flush) as store:
        assert everything(store.log()) == written


async def test_a_failed_checkpoint_is_a_disk_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        monkeypatch.setattr(StoreTable, "write_high_watermarks", fail)
        store.store.checkpoint_high_watermarks({log.tip: 0})
        assert "injected" in str(await store.until_failed())


async def crash(store: OpenStore, directory: Path, copy: Path) -> None:
    """What ``directory`` would be after kill -9 now: every write of the process so far."""
    await store.store.housekeeping.idle()
    copy.mkdir()
    for path in directory.iterdir():
        # LMDB's lock files hold no data, and go with the segments that housekeeping deletes.
        if not path.name.endswith("-lock"):
            (copy / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("flush", FLUSHES)
async def test_power_loss_takes_unsynced_segments_and_says_so(
    tmp_path: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    async with opened(live, flush, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await fill(store, segments=3)
        complete = everything(store.log())
        await crash(store, live, copy)
    (tmp_path / "again").mkdir()
    for path in copy.iterdir():
        (tmp_path / "again" / path.name).write_bytes(path.read_bytes())
    async with opened(tmp_path / "again", flush) as store:
        assert everything(store.log()) == complete
        assert not store.store.log_may_be_lost
    monkeypatch.setattr(store_module, "current_boot_id", lambda: "another boot")
    async with opened(copy, flush, segment_bytes=SEGMENT_BYTES) as store:
        log = store.log()
        found = everything(log)
        assert complete.startswith(found)
        assert (found == complete) == (flush == "sync")
        assert store.store.log_may_be_lost == (flush == "os")
        assert len(found) > 0
        log.append_as_leader(batch(5, 100, seed=99), LeaderEpoch(100))
        await store.until_flushed(log)
        longer = everything(log)
    async with opened(copy, flush) as store:
        assert everything(store.log()) == longer


async def test_truncation_before_a_power_loss_does_not_void_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that the void spared is gone: appends must not go where it reaches."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    async with opened(live, "os", segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await fill(store, segments=2)
        await store.log().truncate_to(10)
        await crash(store, live, copy)
    monkeypatch.setattr(store_module, "current_boot_id", lambda: "another boot")
    async with opened(copy, "os") as store:
        log = store.log()
        assert log.log_end_offset == 10
        log.append_as_leader(batch(5, 100), LeaderEpoch(100))
        await store.until_flushed(log)
    async with opened(copy, "os") as store:
        assert store.log().log_end_offset == 15


async def test_a_missing_segment_ends_the_log_at_the_gap(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        for number in range(4):
            # Keeps its segment alive, so that what lies beyond the gap is still there.
            store.create(f"other-{number}").append_as_leader(batch(), EPOCH)
            await fill(store, segments=1)
        complete = everything(store.log())
    for path in tmp_path.glob("segment-0000000002.*"):
        path.unlink()
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        log = store.log()
        found = everything(log)
        assert 0 < len(found) < len(complete)
        assert complete.startswith(found)
        assert store.store.log_may_be_lost
        # Now: what lives in it is copied forward, and then it goes.
        assert "segment-0000000003.mdb" in segment_files(tmp_path)
        await store.store.housekeeping.idle()
        log.append_as_leader(batch(5, 100), LeaderEpoch(100))
        await store.until_flushed(log)
        longer = everything(log)
        store.store.loss_handled()
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log()) == longer
        assert not store.store.log_may_be_lost


async def test_segments_without_their_table_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        store.create()
    (tmp_path / "store.mdb").unlink()
    with pytest.raises(KafkaError, match=r"segments but no store\.mdb"):
        async with opened(tmp_path):
            pass


async def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        store.create()
    (tmp_path / "store.mdb").write_bytes(b"not an LMDB file" * 1000)
    with pytest.raises(KafkaError, match=r"store\.mdb") as refused:
        async with opened(tmp_path):
            pass
    assert refused.value.code == errors_pb2.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("name", "sub_database", "key", "value"),
    [
        ("store.mdb", b"store", b"format", struct.pack(">I", 3)),
        ("segment-0000000001.mdb", None, struct.pack(">IQH", 2**32 - 1, 0, 0), bytes(12)),
    ],
)
async def test_another_format_is_refused(
    tmp_path: Path, name: str, sub_database: bytes | None, key: bytes, value: bytes
) -> None:
    async with opened(tmp_path):
        pass
    with lmdb.open(str(tmp_path / name), subdir=False, max_dbs=4) as environment:
        database = environment.open_db(sub_database)
        with environment.begin(database, write=True) as transaction:
            assert transaction.replace(key, value)
    with pytest.raises(KafkaError, match=rf"{name}.* format"):
        async with opened(tmp_path):
            pass


async def test_what_a_crash_left_of_a_creation_is_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        store.create()
    (tmp_path / "segment-0000000002.mdb.creating").write_bytes(b"half")
    Segment.create(tmp_path, 2, "sync", SEGMENT_BYTES).close()  # Never entered into the table.
    async with opened(tmp_path) as store:
        assert segment_files(tmp_path) == ["segment-0000000001.mdb"]
        assert not list(tmp_path.glob("*.creating*"))
        assert len(store.store.logs) == 1


async def test_a_segment_created_ahead_is_taken_up_again(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        log = store.create()
        for seed in range(9):
            log.append_as_leader(batch(5, 20_000, seed=seed), EPOCH)
            await store.until_flushed(log)
        await store.store.housekeeping.idle()
        assert len(segment_files(tmp_path)) == 2
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert store.store.segments.newest.id == 1
        await fill(store, segments=1)
        assert store.store.segments.newest.id == 2


async def test_a_group_is_about_a_mebibyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append = Segment.append

    def watched(segment: Segment, batches: Sequence[PendingBatch]) -> None:
        sizes.append(sum(one.size for one in batches))
        append(segment, batches)

    monkeypatch.setattr(Segment, "append", watched)
    async with opened(tmp_path, "os") as store:
        log = store.create()
        for _ in range(100):
            log.append_as_leader(batch(1, 100_000), EPOCH)
        log.append_as_leader(batch(1, 3 << 20), EPOCH)
        await store.until_flushed(log)
    assert sizes == [10 * len(batch(1, 100_000))] * 10 + [len(batch(1, 3 << 20))]


async def test_creating_many_partitions_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    add_partitions = StoreTable.add_partitions

    def watched(table: StoreTable, rows: Sequence[object]) -> None:
        writes.append(len(rows))
        add_partitions(table, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreTable, "add_partitions", watched)
    topic_id = TopicId(os.urandom(16))
    async with opened(tmp_path, "os") as store:
        for partition in range(1000):
            store.store.create(TopicIdPartition(topic_id, partition), "t")
        log = store.log("t", 999)
        log.append_as_leader(batch(), EPOCH)
        await store.until_flushed(log)
    assert writes == [1000]
    async with opened(tmp_path) as store:
        assert len(store.store.logs) == 1000
        assert store.log("t", 999).log_end_offset == 1


async def test_a_segment_knows_how_much_of_it_lives(tmp_path: Path) -> None:
    size = len(batch(1, 1000))
    async with opened(tmp_path) as store:
        kept, cut, gone = (store.create(topic) for topic in ("kept", "cut", "gone"))
        for log in (kept, cut, gone):
            for seed in range(10):
                log.append_as_leader(batch(1, 1000, seed=seed), EPOCH)
        await store.until_flushed(kept, cut, gone)
        segment = store.store.segments.newest
        assert (segment.live_batches, segment.live_bytes) == (30, 30 * size)
        await cut.truncate_to(7)
        await kept.start_at(4)
        await store.store.delete(gone.tip)
        assert (segment.live_batches, segment.live_bytes) == (13, 13 * size)
        assert segment.stored_bytes == 30 * size
    async with opened(tmp_path) as store:
        segment = store.store.segments.newest
        assert (segment.live_batches, segment.live_bytes) == (13, 13 * size)
        assert segment.stored_bytes >= segment.live_bytes
