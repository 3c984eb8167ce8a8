"""A full disk: nothing is taken in, reads and deletions go on, and all resumes with room."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import LogOptions, PartitionLog
from quorate.broker.log.checkpoints.partition_row import NO_SEGMENT, PartitionRow, Truncation
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.options import Flush
from quorate.broker.log.recovery import recovery
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.writing import group_commit, log_writer
from quorate.broker.log.writing.disk_space import RESERVE_FILE, DiskReserve
from quorate.broker.log.writing.write_operations import (
    PartitionCreation,
    PartitionDeletion,
    frees_space,
    space_freeing_first,
)
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened

FLUSHES: list[Flush] = ["sync", "os"]


class FullDisk:
    """What is written fails while ``is_full``; small writes do not once the reserve is given up."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.spared: set[str] = set()
        """What goes on all the same."""
        self._reserve = directory / RESERVE_FILE
        patch.setattr(group_commit, "RETRY_FIRST_S", 0.001)
        patch.setattr(group_commit, "RETRY_MAX_S", 0.001)
        self._limit(patch, Segment, "append", is_small=False)
        self._limit(patch, Segment, "create", is_small=False)
        self._limit(patch, Segment, "delete_from", is_small=True)
        for name in ("add_partitions", "remove_partitions", "record_truncations"):
            self._limit(patch, StoreTable, name, is_small=True)
        self._limit(patch, StoreTable, "write_high_watermarks", is_small=True)
        allocate = DiskReserve._allocate

        def limited(reserve: DiskReserve, size_bytes: int) -> bool:
            has_blocks = self._reserve.exists() and self._reserve.stat().st_size >= size_bytes
            return (has_blocks or not self.is_full) and allocate(reserve, size_bytes)

        patch.setattr(DiskReserve, "_allocate", limited)

    def _limit(self, patch: pytest.MonkeyPatch, owner: type, name: str, *, is_small: bool) -> None:
        write = getattr(owner, name)

        def limited(*args: Any) -> Any:  # noqa: ANN401 - any method
            spared = name in self.spared or (is_small and not self._reserve.exists())
            if self.is_full and not spared:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*args)

        patch.setattr(owner, name, limited)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(tmp_path, monkeypatch)


async def room_becomes(store: OpenStore, *, has_room: bool) -> None:
    while store.store.is_full is has_room:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        store.on_room = told.set_result
        assert await told is has_room


async def test_large_requests_do_not_wait_for_room_on_the_disk(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their appends are refused, as they are to be told."""
    monkeypatch.setattr(log_writer, "FEW_BATCHES", 0)
    async with opened(tmp_path) as store:
        disk.is_full = True
        store.create().append_as_leader(batch(), EPOCH)
        waiting = asyncio.ensure_future(store.store.writer.turns.wait())
        await room_becomes(store, has_room=False)
        await asyncio.wait_for(waiting, 1)
        assert store.store.writer.pending_batches == 1


async def test_nobody_waits_for_a_flush_on_a_full_disk(tmp_path: Path, disk: FullDisk) -> None:
    """The next append is refused, as it is to be told."""
    async with opened(tmp_path) as store:
        log, writer = store.create(), store.store.writer
        disk.is_full = True
        log.append_as_leader(batch(), EPOCH)
        await asyncio.wait_for(writer.wait_for_flush(log, 1), 30)
        assert store.store.is_full
        assert log.flushed_offset == 0
        disk.is_full = False
        await room_becomes(store, has_room=True)


@pytest.mark.parametrize("flush", FLUSHES)
async def test_a_full_disk_refuses_batches_serves_reads_and_recovers(
    tmp_path: Path, disk: FullDisk, flush: Flush
) -> None:
    async with opened(tmp_path, flush) as store:
        log = store.create()
        log.append_as_leader(batch(2), EPOCH)
        await store.until_flushed(log)
        disk.is_full = True
        log.append_as_leader(batch(3, seed=1), LeaderEpoch(5))
        await room_becomes(store, has_room=False)
        assert log.flushed_offset == 2
        for refused in (
            lambda: log.append_as_leader(batch(), EPOCH),
            lambda: log.append_as_follower(batch(base_offset=5)),
            lambda: store.create("new"),
        ):
            with pytest.raises(KafkaError, match=r"is full \(\d+ bytes free") as refusal:
                refused()
            assert refusal.value.code == errors_pb2.KAFKA_STORAGE_ERROR
            assert str(tmp_path) in refusal.value.message
        with pytest.raises(KafkaError, match="is full"):
            await log.truncate_to(1)
        assert log.read(0, 1 << 20, 2).size > 0
        await store.store.writer.wait_for_room()
        assert not store.failures
        disk.is_full = False
        await room_becomes(store, has_room=True)
        log.append_as_leader(batch(1, seed=2), LeaderEpoch(5))
        await store.until_flushed(log)
        assert log.flushed_offset == 6
        written = everything(log)
    async with opened(tmp_path, flush) as store:
        assert everything(store.log()) == written
        assert store.log().leader_epochs.latest_epoch == 5
        assert not store.store.log_may_be_lost


@pytest.mark.parametrize("flush", FLUSHES)
async def test_deletions_and_later_starts_go_ahead_of_what_waits_for_room(
    tmp_path: Path, disk: FullDisk, flush: Flush
) -> None:
    async with opened(tmp_path, flush) as store:
        log, doomed = store.create("kept"), store.create("doomed")
        for each in (log, doomed):
            each.append_as_leader(batch(2), EPOCH)
            each.append_as_leader(batch(2), EPOCH)
        await store.until_flushed(log, doomed)
        disk.is_full = True
        for each in (doomed, log):
            each.append_as_leader(batch(3), EPOCH)
        await room_becomes(store, has_room=False)
        await log.start_at(2)
        await store.store.delete(doomed.tip)
        assert store.store.is_full
        disk.is_full = False
        await store.until_flushed(log)
        assert (log.log_start_offset, log.flushed_offset) == (2, 7)
        written = everything(log)
    async with opened(tmp_path, flush) as store:
        assert [each.topic for each in store.store.logs.values()] == ["kept"]
        assert everything(store.log("kept")) == written
        assert len(store.store.segments.by_id) == 1


@pytest.mark.parametrize("flush", FLUSHES)
async def test_a_store_closes_without_room_and_keeps_what_was_flushed(
    tmp_path: Path, disk: FullDisk, flush: Flush
) -> None:
    async with opened(tmp_path, flush) as store:
        log = store.create()
        log.append_as_leader(batch(2), EPOCH)
        await store.until_flushed(log)
        written = everything(log)
        disk.is_full = True
        log.append_as_leader(batch(2, seed=1), EPOCH)
        await room_becomes(store, has_room=False)
    assert not (tmp_path / RESERVE_FILE).exists()
    async with opened(tmp_path, flush) as store:
        assert store.store.is_full
        assert everything(store.log()) == written
        with pytest.raises(KafkaError, match="is full"):
            store.log().append_as_leader(batch(), EPOCH)
        disk.is_full = False
        await room_becomes(store, has_room=True)
        store.log().append_as_leader(batch(), EPOCH)
        await store.until_flushed(store.log())


async def test_what_waited_for_room_is_done_in_its_order(tmp_path: Path, disk: FullDisk) -> None:
    async with opened(tmp_path) as store:
        disk.is_full = True
        log = store.create()
        for number in range(50):
            log.append_as_leader(batch(1, seed=number), EPOCH)
        await room_becomes(store, has_room=False)
        assert log.flushed_offset == 0
        disk.is_full = False
        await store.until_flushed(log)
        written = everything(log)
        flushed = [offset for flush in store.flushes for _, offset in flush]
        assert flushed == sorted(flushed)
    async with opened(tmp_path) as store:
        assert everything(store.log()) == written


def test_an_epoch_is_recorded_with_the_commit_that_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = PendingBatch(3, 0, 0, batch(), 7, 0, size=len(batch()))
    segment = Segment.create(tmp_path, 1, "sync", 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr("quorate.broker.log.segments.segment.CHUNK_BYTES", "not a size")
        with pytest.raises(TypeError):
            segment.append([pending])
    segment.append([pending])
    again = Segment.open(segment.path, segment.seal())
    assert again.contents is not None
    assert [epoch.leader_epoch for epoch in again.contents.epochs] == [7]
    again.close()
    segment.close()


async def test_a_roll_without_room_is_tried_again(tmp_path: Path, disk: FullDisk) -> None:
    async with opened(tmp_path, segment_bytes=256 << 10) as store:
        log = store.create()
        disk.is_full, disk.spared = True, {"append", "add_partitions"}
        while not store.store.is_full:
            log.append_as_leader(batch(1, 50_000), EPOCH)
            await flushed_or_full(store, log)
        assert len(store.store.segments.by_id) == 1
        disk.is_full = False
        await store.until_flushed(log)
        assert len(store.store.segments.by_id) == 2


async def flushed_or_full(store: OpenStore, log: PartitionLog) -> None:
    while log.flushed_offset < log.log_end_offset and not store.store.is_full:
        await asyncio.sleep(0)


async def test_a_checkpoint_without_room_is_no_failure(tmp_path: Path, disk: FullDisk) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_leader(batch(), EPOCH)
        await store.until_flushed(log)
        disk.is_full = True
        store.store.checkpoint_high_watermarks({log.tip: 1})
        await store.store.housekeeping.idle()
        await asyncio.sleep(0)
        disk.is_full = False
        assert not store.failures
        log.append_as_leader(batch(), EPOCH)
        await store.until_flushed(log)


@pytest.mark.parametrize("has_more", [True, False])
def test_an_input_output_error_is_a_full_disk_if_the_disk_refuses_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_more: bool
) -> None:
    """LMDB says EIO of a write that was cut short."""
    reserve = DiskReserve(tmp_path, 4096)
    assert reserve.hold()

    def allocate(descriptor: int, offset: int, size: int) -> None:
        if not has_more:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    assert reserve.explains(OSError(errno.EIO, "cut short")) is not has_more
    assert (tmp_path / RESERVE_FILE).stat().st_size == 4096


@pytest.mark.parametrize(
    ("error", "is_room"),
    [
        (OSError(errno.ENOSPC, ""), True),
        (OSError(errno.EDQUOT, ""), True),
        (OSError(errno.EROFS, ""), False),
        (lmdb.MapFullError("full"), True),
        (lmdb.PanicError("panic"), False),
        (ValueError("a bug"), False),
    ],
)
def test_only_want_of_room_is_waited_out(tmp_path: Path, error: Exception, is_room: bool) -> None:
    assert DiskReserve(tmp_path, 4096).explains(error) is is_room


def test_what_wraps_a_full_disk_is_one(tmp_path: Path) -> None:
    wrapped = KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, "a segment")
    wrapped.__cause__ = OSError(errno.ENOSPC, "full")
    assert DiskReserve(tmp_path, 4096).explains(wrapped)


def test_the_reserve_has_blocks_until_it_is_released(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path, 1 << 20)
    assert reserve.hold()
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= 1 << 20
    reserve.release()
    assert not reserve.is_held
    assert not (tmp_path / RESERVE_FILE).exists()


def test_lock_files_have_blocks_before_lmdb_maps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written through a map, a hole in one ends the process on a full disk."""
    opened_with: list[int] = []
    real_open = lmdb.open

    def noting(path: str, **options: Any) -> lmdb.Environment:  # noqa: ANN401 - LMDB's own
        opened_with.append(os.stat(path + "-lock").st_blocks * 512)
        return real_open(path, **options)

    monkeypatch.setattr(lmdb, "open", noting)
    Segment.create(tmp_path, 1, "sync", 1 << 20).close()
    StoreTable.open(tmp_path).close()
    assert len(opened_with) == 4, (
        "a segment and the table, each when it is made and when it is used"
    )
    assert min(opened_with) >= 8192


async def test_a_folder_with_little_room_is_opened_with_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening writes a little: the blocks kept for it are given back before."""
    async with opened(tmp_path) as store:
        assert not store.store.is_full
    seen: list[bool] = []
    run = recovery.recover

    def noting(
        directory: Path, options: LogOptions, boot_id: str, now_ms: int
    ) -> recovery.RecoveredLogDirectory:
        seen.append((directory / RESERVE_FILE).exists())
        return run(directory, options, boot_id, now_ms)

    monkeypatch.setattr("quorate.broker.log.log_manager.recover", noting)
    async with opened(tmp_path):
        pass
    monkeypatch.setattr(DiskReserve, "free_bytes", lambda self: 100)
    async with opened(tmp_path):
        pass
    assert seen == [True, False]


def deletion_of(*numbers: int) -> PartitionDeletion:
    return PartitionDeletion(numbers)


def test_what_makes_room_goes_first_and_everything_else_keeps_its_order() -> None:
    created = [
        PartitionCreation(PartitionRow(number, b"t" * 16, number, "t")) for number in range(3)
    ]
    pending = [PendingBatch(number, 0, 0, b"", 0, 0, size=0) for number in range(3)]
    cut = Truncation(1, 5, 1)
    afresh = Truncation(2, 0, 1, log_start_offset=9)
    later_start = Truncation(0, 7, NO_SEGMENT, log_start_offset=3)
    works: Sequence[Any] = [*created, *pending, cut, later_start, deletion_of(1), afresh]
    assert [frees_space(work) for work in (cut, afresh, later_start, deletion_of(1))] == [
        False,
        False,
        True,
        True,
    ]
    first, waiting = space_freeing_first(works)
    assert first == [later_start, deletion_of(1)]
    assert waiting == [created[0], created[2], *pending, cut, afresh]
