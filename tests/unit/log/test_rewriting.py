"""Batches written again, and what happens to them meanwhile: truncations, deletions, crashes."""

import asyncio
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.record_batch import Batch, patched, read_header
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.broker.log.segments.batch_index import PlacedBatch
from quorate.broker.log.writing.live_segments import LiveSegments
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened

SIZE = 1000


async def two_logs(store: OpenStore) -> tuple[PartitionLog, PartitionLog]:
    """Four batches of ten in each, in a sealed segment that the second one keeps from going."""
    logs = store.create("moved"), store.create("other")
    for seed in range(4):
        for log, size in zip(logs, (SIZE, 10 * SIZE), strict=True):
            log.append_as_leader(batch(10, size, seed=seed), EPOCH)
    await store.until_flushed(*logs)
    await store.store.writer.roll()
    await store.store.housekeeping.idle()
    return logs


def as_stored(log: PartitionLog, placed: PlacedBatch) -> Batch:
    data = b"".join(placed.segment.read(log.number, [placed[:2]]))
    return Batch(read_header(data), memoryview(data))


def merged(base_offset: int, end_offset: int, seed: int = 99) -> Batch:
    """One batch that spans all offsets."""
    data = bytes(
        patched(memoryview(batch(end_offset - base_offset, 61, seed=seed)), base_offset, EPOCH)
    )
    return Batch(read_header(data), memoryview(data))


def copies(log: PartitionLog, start: int, end: int) -> Rewrite:
    old = log.placed(start, end)
    return Rewrite(log, old, [as_stored(log, placed) for placed in old])


def merge(log: PartitionLog, start: int, end: int) -> Rewrite:
    return Rewrite(log, log.placed(start, end), [merged(start, end)])


def segments_of(log: PartitionLog) -> list[int]:
    return [placed.segment.id for placed in log.placed(0, log.log_end_offset)]


async def done(store: OpenStore, rewrite: Rewrite) -> bool:
    (was_done,) = await store.store.rewrite([rewrite])
    return was_done


async def test_copies_are_read_where_they_are_now(tmp_path: Path) -> None:
    async with opened(tmp_path, tail_bytes=0) as store:
        log, _ = await two_logs(store)
        before = everything(log)
        assert await done(store, copies(log, 10, 30))
        assert segments_of(log) == [1, 2, 2, 1]
        assert everything(log) == before
        log.append_as_leader(batch(10, SIZE), EPOCH)
        await store.until_flushed(log)
        assert segments_of(log) == [1, 2, 2, 1, 2]
        assert log.read(25, 1, 50).next_offset == 30
        after = everything(log)
    async with opened(tmp_path, tail_bytes=0) as store:
        log = store.log("moved")
        assert everything(log) == after
        assert segments_of(log) == [1, 2, 2, 1, 2]
        assert log.leader_epochs.entries == [(EPOCH, 0)]


async def test_a_batch_takes_the_place_of_several(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        assert await done(store, merge(log, 10, 30))
        read = log.read(15, 1, 40)
        assert (b"".join(read.chunks), read.next_offset) == (bytes(merged(10, 30).data), 30)
        assert log.size_bytes == 2 * len(batch(10, SIZE)) + len(merged(10, 30).data)
        after = everything(log)
    async with opened(tmp_path) as store:
        assert everything(store.log("moved")) == after


async def test_a_segment_goes_when_all_of_it_was_written_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, other = await two_logs(store)
        before = everything(log), everything(other)
        both = [copies(log, 0, 40), copies(other, 0, 40)]
        assert await store.store.rewrite(both) == [True, True]
        await store.store.housekeeping.idle()
        assert [path.name for path in tmp_path.glob("segment-*.mdb")] == ["segment-0000000002.mdb"]
        assert (everything(log), everything(other)) == before
    async with opened(tmp_path) as store:
        assert (everything(store.log("moved")), everything(store.log("other"))) == before


async def test_without_fsync_the_old_segment_stays_until_the_new_one_is_sealed(
    tmp_path: Path,
) -> None:
    def names() -> set[int]:
        return {int(path.name[8:18]) for path in tmp_path.glob("segment-*.mdb")}

    async with opened(tmp_path, "os") as store:
        log, other = await two_logs(store)
        await store.store.rewrite([copies(log, 0, 40), copies(other, 0, 40)])
        await store.store.housekeeping.idle()
        assert 1 in names(), "a power loss takes segment 2"
        before = everything(log)
    async with opened(tmp_path, "os") as store:
        await store.store.housekeeping.idle()
        assert 1 in names(), "segment 2 is written on"
        await store.store.writer.roll()
        await store.store.housekeeping.idle()
        store.log("other").append_as_leader(batch(), EPOCH)
        await store.until_flushed(store.log("other"))
        await store.store.housekeeping.idle()
        assert 1 not in names()
        assert everything(store.log("moved")) == before


async def test_without_fsync_what_was_copied_outlives_a_restart_and_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else in the old segment dies after the restart, before the copies are durable."""
    live, crashed = tmp_path / "live", tmp_path / "crashed"
    async with opened(live, "os") as store:
        log, _ = await two_logs(store)
        before = everything(log)
        assert await done(store, copies(log, 0, 40))
    async with opened(live, "os") as store:
        await store.store.delete(store.log("other").tip)
        await store.store.housekeeping.idle()
        shutil.copytree(live, crashed)
        await store.store.writer.roll()
        await store.store.housekeeping.idle()
        store.log("moved").append_as_leader(batch(), EPOCH)
        await store.until_flushed(store.log("moved"))
        await store.store.housekeeping.idle()
        assert 1 not in store.store.segments.by_id, "its copies are durable now"
    monkeypatch.setattr("quorate.broker.log.log_manager.current_boot_id", lambda: "another boot")
    async with opened(crashed, "os") as store:
        assert everything(store.log("moved")) == before


async def test_a_segment_that_goes_before_it_is_sealed_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, "os") as store:
        log, other = await two_logs(store)
        assert await done(store, copies(log, 0, 40))
        copied = store.store.segments.newest
        monkeypatch.setattr(copied, "seal", refuse)
        await store.store.delete(log.tip)
        await store.store.writer.roll()
        await store.store.housekeeping.idle()
        assert copied.is_unlinked
        await store.store.delete(other.tip)
        await store.store.housekeeping.idle()
        assert list(store.store.segments.by_id) == [3]


def refuse() -> None:
    raise OSError(errno.ENOSPC, "injected: no room for a footer")


def test_all_that_is_kept_of_a_segment_is_counted() -> None:
    old, volatile = SimpleNamespace(id=1), SimpleNamespace(id=2, is_volatile=True)
    segments = LiveSegments({}, cast("Any", volatile), *[cast("Any", None)] * 4)
    segments.keep_until_durable(cast("Any", volatile), [(cast("Any", old), 2, 100)])
    segments.keep_until_durable(cast("Any", volatile), [(cast("Any", old), 1, 50)])
    assert segments.kept_bytes() == {1: 150}


async def test_what_was_cut_off_does_not_come_back_from_an_older_segment(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        assert await done(store, copies(log, 0, 40))
        await log.truncate_to(20)
        left = everything(log)
    async with opened(tmp_path) as store:
        log = store.log("moved")
        assert (log.log_end_offset, everything(log)) == (20, left)
        await log.truncate_to(10)
    async with opened(tmp_path) as store:
        assert store.log("moved").log_end_offset == 10


async def test_a_crash_inside_a_truncation_leaves_no_hole_where_batches_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment holds the older batches, a sealed one those behind them."""
    record = StoreTable.record_truncations

    def crashing(table: StoreTable, *arguments: Any) -> None:  # noqa: ANN401 - passed on
        # The lock files of segments that are unlinked meanwhile may go between two looks.
        ignored = shutil.ignore_patterns("*.mdb-lock")
        shutil.copytree(tmp_path / "log", tmp_path / "crashed", ignore=ignored, dirs_exist_ok=True)
        record(table, *arguments)

    async with opened(tmp_path / "log") as store:
        log, other = await two_logs(store)
        log.append_as_leader(batch(20, SIZE), EPOCH)
        await store.until_flushed(log)
        await store.store.writer.roll()
        await store.store.housekeeping.idle()
        await store.store.rewrite([copies(log, 0, 40), copies(other, 0, 40)])
        await store.store.housekeeping.idle()
        assert segments_of(log) == [3, 3, 3, 3, 2]
        assert sorted(store.store.segments.by_id) == [2, 3], "the first segment stays"
        monkeypatch.setattr(StoreTable, "record_truncations", crashing)
        await log.truncate_to(20)
        left = everything(log)
    monkeypatch.undo()
    async with opened(tmp_path / "crashed") as store:
        assert store.log("moved").log_end_offset in (20, 60)
        assert not store.store.log_may_be_lost
    async with opened(tmp_path / "log") as store:
        assert everything(store.log("moved")) == left


async def test_a_truncation_waits_for_a_rewrite(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        rewriting = asyncio.create_task(done(store, merge(log, 0, 20)))
        await asyncio.sleep(0)
        await log.truncate_to(15)
        assert await rewriting
        assert log.log_end_offset == 0, "the batch that spans offset 15 begins at 0"
    async with opened(tmp_path) as store:
        assert store.log("moved").log_end_offset == 0


async def test_a_log_start_may_move_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        rewriting = asyncio.create_task(done(store, merge(log, 0, 30)))
        await asyncio.sleep(0)
        await log.start_at(10)
        assert await rewriting
        assert (log.log_start_offset, log.log_end_offset) == (10, 40)
        assert segments_of(log) == [2, 1]
        after = everything(log)
        assert after.startswith(merged(0, 30).data)
    async with opened(tmp_path) as store:
        assert everything(store.log("moved")) == after


async def test_what_is_gone_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, other = await two_logs(store)
        tasks = [asyncio.create_task(done(store, copies(each, 0, 40))) for each in (log, other)]
        await asyncio.sleep(0)
        await log.truncate_fully_and_start_at(5)
        await store.store.delete(other.tip)
        assert [await task for task in tasks] == [False, False]
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert log.append_as_leader(batch(10, SIZE), EPOCH).base_offset == 5
        after = everything(log)
    async with opened(tmp_path) as store:
        assert everything(store.log("moved")) == after
        assert len(store.store.logs) == 1


async def test_what_follows_one_that_is_not_done_is_not_done(tmp_path: Path) -> None:
    """A record that deletes others must not go before they do."""
    async with opened(tmp_path) as store:
        log, other = await two_logs(store)
        stale = copies(log, 10, 20)
        assert await done(store, stale)
        rewrites = [merge(log, 0, 10), stale, merge(log, 20, 40), merge(other, 0, 40)]
        assert await store.store.rewrite(rewrites) == [True, False, False, True]


async def test_what_is_not_as_it_was_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        stale = copies(log, 0, 40)
        assert await done(store, merge(log, 10, 30))
        before = everything(log)
        assert not await done(store, stale)
        assert everything(log) == before
        log.append_as_leader(batch(10, SIZE), EPOCH)
        await store.until_flushed(log)
        assert not await done(store, copies(log, 40, 50)), "its segment is written still"


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 10)],
        [(0, 10), (20, 30)],
        [(0, 15), (15, 30)],
        [(10, 30)],
        [(0, 40)],
        [],
    ],
)
async def test_new_batches_span_what_old_ones_do(
    tmp_path: Path, spans: list[tuple[int, int]]
) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        new = [merged(*span) for span in spans]
        with pytest.raises(ValueError, match=r"new batch"):
            await store.store.rewrite([Rewrite(log, log.placed(0, 30), new)])


async def test_after_a_disk_failure_nothing_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        log, _ = await two_logs(store)
        rewrite = copies(log, 0, 40)

        def fail(_: object) -> Iterator[None]:
            raise OSError("the disk is broken")

        monkeypatch.setattr(store.store.segments.newest, "append", fail)
        with pytest.raises(KafkaError, match="the disk is broken"):
            await done(store, rewrite)
        with pytest.raises(KafkaError, match="failed"):
            await done(store, rewrite)
        with pytest.raises(KafkaError, match="failed"):
            await log.truncate_to(10)
        monkeypatch.undo()


async def test_an_empty_segment_is_not_rolled(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await two_logs(store)
        newest = store.store.segments.newest.id
        await store.store.writer.roll()
        assert store.store.segments.newest.id == newest
