"""Several log folders of one broker: placement, and going on without one of them."""

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import LogDirectories, PartitionLog
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.directories.known_folders import FILE_NAME, Absence, read_known_folders
from quorate.broker.log.writing.log_writer import LogWriter
from quorate.common.files.data_folder import DataFolderMismatch
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.support.log_folders import Failures, opened_folders
from tests.support.record_batches import Record, encode_batch
from tests.support.waiting import async_wait_until

EPOCH = LeaderEpoch(0)
BATCH = encode_batch([Record(0, value=b"v")])


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def tip(number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(TopicId(number.to_bytes(16)), 0)


def create(folders: LogDirectories, count: int, first: int = 0) -> list[PartitionLog]:
    return [folders.create(tip(number), f"t{number}") for number in range(first, first + count)]


async def fail(folders: LogDirectories, failures: Failures, index: int = 1) -> None:
    """The disk of a folder fails under its next checkpoint."""
    store = folders.stores[index]
    store.writer.fail(OSError(5, f"{store.directory} fails"))
    await failures.changed.wait()


async def test_new_logs_go_to_the_folder_with_the_fewest(paths: list[Path]) -> None:
    async with opened_folders(paths[:1]) as folders:
        create(folders, 3)
        await folders.stores[0].writer.settle()
    async with opened_folders(paths) as folders:
        assert len(folders.logs) == 3
        made = create(folders, 5, first=3)
        assert Counter(log.directory for log in made) == {paths[0]: 1, paths[1]: 4}
        assert folders.create(tip(0), "t0") is folders.logs[tip(0)]
        await folders.stores[1].writer.settle()
    async with opened_folders(paths) as folders:
        assert [len(store.logs) for store in folders.stores] == [4, 4]
        assert not folders.offline


async def test_a_single_folder_is_as_before(paths: list[Path]) -> None:
    async with opened_folders(paths[:1]) as folders:
        assert folders.room is folders.stores[0].writer
        assert folders.logs is folders.stores[0].logs
    assert not (paths[0] / FILE_NAME).exists(), "an earlier release knows no such file"


async def test_a_full_disk_gets_no_new_logs(paths: list[Path]) -> None:
    async with opened_folders(paths) as folders:
        folders.stores[0].writer.space.is_full = True
        assert {log.directory for log in create(folders, 3)} == {paths[1]}
        assert folders.is_any_full
        assert not folders.is_full
        assert folders.troubled_directories == {paths[0]}
        folders.stores[0].writer.space.is_full = False


async def test_a_failed_disk_takes_its_logs_alone(paths: list[Path]) -> None:
    failures = Failures()
    async with opened_folders(paths, failures) as folders:
        first, second = create(folders, 2)
        await fail(folders, failures)
        assert (len(failures.of_one), failures.of_all) == (1, [])
        assert (first.is_offline, second.is_offline) == (False, True)
        first.append_as_leader(BATCH, EPOCH)
        await async_wait_until(lambda: first.flushed_offset == 1, "the other disk to work")
        with pytest.raises(KafkaError, match="failed"):
            second.append_as_leader(BATCH, EPOCH)
        assert {log.directory for log in create(folders, 3, first=2)} == {paths[0]}
        assert folders.offline_directories == [paths[1]]
        assert folders.room.has_room
        await folders.room.wait_for_room()
        await folders.delete(second.tip)
        assert second.tip not in folders.logs
        await fail(folders, failures, index=0)
        assert len(failures.of_all) == 1, "no folder is left"


async def test_a_real_write_error_takes_the_folder_offline(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures()
    real = StoreTable.write_high_watermarks

    def write(table: StoreTable, *arguments: object) -> int:
        if table._path.parent == paths[1]:
            raise OSError(5, "Input/output error")
        return real(table, *arguments)  # type: ignore[arg-type]

    async with opened_folders(paths, failures) as folders:
        first, second = create(folders, 2)
        monkeypatch.setattr(StoreTable, "write_high_watermarks", write)
        folders.checkpoint_high_watermarks({first.tip: 0, second.tip: 0})
        await failures.changed.wait()
        assert second.is_offline
        assert not first.is_offline


async def test_the_logs_of_a_folder_that_is_not_there_get_no_others(paths: list[Path]) -> None:
    async with opened_folders(paths) as folders:
        create(folders, 2)
        for store in folders.stores:
            await store.writer.settle()
    shutil.move(paths[1], away := paths[1].with_name("away"))
    async with opened_folders(paths) as folders:
        assert folders.offline_directories == [paths[1]]
        assert [one.path for one in folders.missing.values()] == [str(paths[1])]
        folders.withheld = frozenset({tip(1)})
        with pytest.raises(KafkaError) as refused:
            folders.create(tip(1), "t1")
        assert refused.value.code == errors_pb2.KAFKA_STORAGE_ERROR
        assert "mount its disk" in str(refused.value)
        assert not paths[1].exists()
    shutil.move(away, paths[1])
    async with opened_folders(paths) as folders:
        assert len(folders.logs) == 2
        assert not folders.missing


async def test_a_broker_stops_only_without_any_folder(paths: list[Path]) -> None:
    async with opened_folders(paths):
        pass
    for path in paths:
        (path / "store.mdb").write_bytes(b"damaged")
    with pytest.raises(KafkaError):
        async with opened_folders(paths):
            pass


async def test_a_folder_of_another_broker_is_refused(paths: list[Path], tmp_path: Path) -> None:
    async with opened_folders(paths[:1]):
        pass
    shutil.copytree(paths[0], paths[1])
    with pytest.raises(DataFolderMismatch, match="the same id"):
        async with opened_folders(paths):
            pass


async def test_a_folder_knows_since_when_another_is_absent(paths: list[Path]) -> None:
    failures = Failures()
    since = Absence(os.urandom(16), 5, 0)
    async with opened_folders(paths, failures) as folders:
        await fail(folders, failures)
        assert folders.mark == 0
        await folders.note_absences(since)
    known = read_known_folders(paths[0])
    assert known is not None
    absences = {one.path: one.absence for one in known.folders.values()}
    assert absences == {str(paths[0]): None, str(paths[1]): since}
    async with opened_folders(paths) as folders:
        assert folders.absence_of(folders.stores[1]) == since
        await folders.note_absences(since._replace(epoch=9))
        assert folders.absence_of(folders.stores[1]) is None


async def test_rule_8_the_marks_of_all_folders_grow_together(paths: list[Path]) -> None:
    async with opened_folders(paths[:1]) as folders:
        (log,) = create(folders, 1)
        for _ in range(3):
            folders.checkpoint_high_watermarks({log.tip: 0})
            await folders.stores[0].housekeeping.idle()
    async with opened_folders(paths) as folders:
        before = folders.stores[0].mark
        assert folders.mark == folders.stores[1].mark < before
        folders.checkpoint_high_watermarks({log.tip: 0})
        for store in folders.stores:
            await store.housekeeping.idle()
        assert folders.mark > before


async def test_rule_7_a_log_in_two_folders_is_served_from_one_and_kept_in_both(
    paths: list[Path],
) -> None:
    for path in paths:
        async with opened_folders([path]) as folders:
            create(folders, 1)
            await folders.stores[0].writer.settle()
    async with opened_folders(paths) as folders:
        assert folders.logs[tip()].directory == paths[0]
        assert not folders.stores[1].logs
        folders.note_strays([])
        assert folders.stray_count == 1
        assert folders.stores[1].history.strays == (tip(),)


async def test_rule_8_a_record_of_what_has_a_log_waits_for_the_logs(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = asyncio.Event()

    async def settle(writer: LogWriter) -> None:
        await settled.wait()

    def records() -> list[int]:
        return [store.history.hosted_through for store in folders.stores]

    async with opened_folders(paths) as folders:
        create(folders, 4)
        monkeypatch.setattr(LogWriter, "settle", settle)
        folders.note_hosted_through(7)
        for _ in range(5):
            await asyncio.sleep(0)
        assert records() == [0, 0]
        settled.set()
        await async_wait_until(lambda: records() == [7, 7], "both folders to have the record")
        assert folders.hosted_through == 7


async def test_the_log_that_was_moved_last_counts_and_the_other_goes(paths: list[Path]) -> None:
    """A crash may leave both, with the same batches."""
    for placement, path in enumerate(paths):
        async with opened_folders([path]) as folders:
            (log,) = create(folders, 1)
            store = folders.stores[0]
            await store.writer.settle()
            await store.futures.outrank(log, placement)
    async with opened_folders(paths) as folders:
        assert folders.logs[tip()].directory == paths[1]
        assert not folders.stores[0].logs
        folders.note_strays([])
        assert folders.stray_count == 0, "it is deleted and not set aside"


async def test_a_copy_whose_replica_is_gone_is_deleted(paths: list[Path]) -> None:
    async with opened_folders(paths) as folders:
        first, _ = create(folders, 2)
        future = folders.stores[1].futures.create(first)
        assert folders.future_of(first.tip) is future
        await folders.stores[1].writer.settle()
        await folders.stores[0].delete(first.tip)
    async with opened_folders(paths) as folders:
        assert [len(store.logs) for store in folders.stores] == [0, 1]
        assert not any(store.futures for store in folders.stores)


async def test_a_log_that_went_on_while_its_copy_was_missing_is_not_deleted(
    paths: list[Path],
) -> None:
    """A crash came before the old log of a move was deleted, and took the new folder away."""
    async with opened_folders(paths) as folders:
        (log,) = create(folders, 1)
        old = folders.store_of(log)
        new = next(one for one in folders.stores if one is not old)
        log.append_as_leader(BATCH, EPOCH)
        await old.writer.settle()
        future = new.futures.create(log)
        future.append_as_follower(b"".join(log.read(0, 1 << 20, 1).chunks))
        await new.futures.promote(future)
    away = new.directory.with_name("away")
    new.directory.rename(away)
    async with opened_folders(paths) as folders:
        await folders.note_absences(Absence(b"incarnation", 1, 1))
        for _ in range(5):
            folders.logs[tip(0)].append_as_leader(BATCH, EPOCH)
        await folders.stores[0].writer.settle()
    shutil.rmtree(new.directory, ignore_errors=True)
    away.rename(new.directory)
    async with opened_folders(paths) as folders:
        assert folders.logs[tip(0)].log_end_offset == 6
