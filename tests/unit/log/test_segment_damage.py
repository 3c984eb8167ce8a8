"""What the checksum of a batch does not cover is checked as well: keys, epochs, LMDB's pages."""

import asyncio
import random
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.checkpoints.table_rows import DATABASES
from quorate.broker.log.recovery.examination import LogProblem, examine
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    FORMAT_WITHOUT_CHECKS,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    OFFSET,
    epoch_key,
)
from quorate.broker.log.segments.segment_names import set_aside
from quorate.common.files.lmdb_check import LmdbFile
from tests.support.cli import quorate, quorate_error
from tests.support.log_stores import EPOCH, batch, everything, opened

SEED = 16
FLIPS = 60
PAGE = 4096

Found = tuple[list[bytes], bool]
"""The bytes of every log, and whether a loss is declared."""


def segment_path(folder: Path, segment_id: int = 1) -> Path:
    return folder / f"segment-{segment_id:010d}.mdb"


async def _fill(folder: Path) -> None:
    async with opened(folder) as store:
        logs = [store.create(partition=partition) for partition in range(3)]
        for turn in range(6):
            for log in logs:
                size, seed = 100 if turn % 2 else 6000, turn * 10 + log.tip.partition
                log.append_as_leader(batch(2, size, seed=seed), EPOCH)
                await store.until_flushed(log)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a log folder with three partitions in one active segment."""
    asyncio.run(_fill(tmp_path))
    return tmp_path


async def _found(folder: Path) -> Found:
    async with opened(folder, tail_bytes=0) as store:
        logs = sorted(store.store.logs.values(), key=lambda log: log.tip.partition)
        return [_all_of(log) for log in logs], store.store.log_may_be_lost


def _all_of(log: PartitionLog) -> bytes:
    """Return all bytes of a log. A damaged batch raises."""
    at, read = log.log_start_offset, b""
    while at < log.log_end_offset:
        found = log.read(at, 1 << 40, log.log_end_offset)
        at, read = found.next_offset, read + b"".join(found.chunks)
    return read


def found(folder: Path) -> Found:
    """Return what a start finds."""
    return asyncio.run(_found(folder))


def problems(folder: Path) -> list[LogProblem]:
    return examine(folder).problems


def change(folder: Path, work: Callable[["lmdb.Transaction[bytes]"], object]) -> None:
    """Change rows of the active segment behind its back, as a flipped bit would."""
    with (
        lmdb.open(str(segment_path(folder)), subdir=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        work(transaction)


def moved(old: bytes, new: bytes) -> Callable[["lmdb.Transaction[bytes]"], object]:
    def move(transaction: "lmdb.Transaction[bytes]") -> None:
        value = transaction.pop(old)
        assert value is not None
        transaction.put(new, value)

    return move


def replaced(key: bytes, at: int, bits: int) -> Callable[["lmdb.Transaction[bytes]"], object]:
    def replace(transaction: "lmdb.Transaction[bytes]") -> None:
        value = bytearray(bytes(transaction.get(key, b"")))
        value[at] ^= bits
        transaction.put(key, bytes(value))

    return replace


DAMAGES = {
    "partition of the last batch": moved(KEY.pack(2, 10, 0), KEY.pack(6, 10, 0)),
    "offset of the last batch": moved(KEY.pack(2, 10, 0), KEY.pack(2, 12, 0)),
    "leader epoch of a batch": replaced(KEY.pack(1, 4, 0), 15, 1),
    "check of a batch": replaced(KEY.pack(1, 4, CHECK), 0, 1),
    "check of a batch is missing": lambda transaction: transaction.delete(KEY.pack(1, 4, CHECK)),
    "start of an epoch": replaced(epoch_key(1, 0), 7, 1),
    "partition of an epoch": moved(epoch_key(2, 0), epoch_key(3, 0)),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_declared_as_a_loss_and_verify_tells(folder: Path, what: str) -> None:
    whole, _ = found(folder)
    change(folder, DAMAGES[what])
    assert problems(folder)
    logs, is_lost = found(folder)
    assert is_lost
    assert all(one.startswith(left) for one, left in zip(whole, logs, strict=True))
    assert problems(folder) == []


def test_a_damaged_segment_is_not_written_any_more(folder: Path) -> None:
    change(folder, DAMAGES["check of a batch"])

    async def write() -> None:
        async with opened(folder) as store:
            assert store.store.segments.newest.id == 2
            log = store.log("t", 1)
            log.append_as_leader(batch(1), EPOCH)
            await store.until_flushed(log)

    asyncio.run(write())
    logs, _ = found(folder)
    assert len(logs[1]) > 0
    table = StoreTable.open(folder)
    assert 1 in table.footers()
    table.close()


@pytest.mark.parametrize("what", ["leader epoch of a batch", "partition of the last batch"])
def test_repair_makes_the_folder_valid(folder: Path, what: str) -> None:
    change(folder, DAMAGES[what])
    assert problems(folder)
    assert "cut t-" in quorate("log", "repair", "--log-dir", str(folder))
    assert problems(folder) == []
    assert found(folder)[1]


def test_a_leader_epoch_is_compared_at_every_read(folder: Path) -> None:
    async def damaged_while_open(*, is_sealed: bool) -> None:
        async with opened(folder, segment_bytes=1, tail_bytes=0) as store:
            log = store.log("t", 1)
            if is_sealed:
                log.append_as_leader(batch(1), EPOCH)
                await store.until_flushed(log)
                await store.store.housekeeping.idle()
                assert store.store.segments.by_id[1].is_sealed
            data = segment_path(folder).read_bytes()
            at = data.index(everything(log)[:61], 2 * PAGE)
            with segment_path(folder).open("r+b") as file:
                file.seek(at + 15)
                file.write(b"\1")
            with pytest.raises(DamagedBatch):
                log.read(0, 1, log.log_end_offset)
            with segment_path(folder).open("r+b") as file:
                file.seek(at + 15)
                file.write(data[at + 15 : at + 16])
            assert log.read(0, 1, log.log_end_offset).size > 0

    asyncio.run(damaged_while_open(is_sealed=False))
    asyncio.run(damaged_while_open(is_sealed=True))


def test_no_flipped_bit_loses_a_batch_silently(folder: Path) -> None:
    """The outcome is the same logs, a declared loss, a damaged batch, or a refusal with advice."""
    whole, _ = found(folder)
    path, table = segment_path(folder), folder / "store.mdb"
    data, rows = path.read_bytes(), table.read_bytes()
    chosen = random.Random(SEED)
    with LmdbFile(path) as file:
        free = set(file.free_pages())
    pages = [
        [at for at in range(start, start + PAGE) if data[at]]
        for start in range(0, len(data), PAGE)
        if start // PAGE not in free and any(data[start : start + PAGE])
    ]
    for turn in range(FLIPS):
        used = chosen.choice(pages)
        at, bit = chosen.choice(used[:60] + used[-200:]), 1 << chosen.randrange(8)
        changed = bytearray(data)
        changed[at] ^= bit
        for left in folder.glob("segment-*"):
            left.unlink()
        path.write_bytes(changed)
        table.write_bytes(rows)
        assert _outcome(folder, whole) == "", f"seed {SEED}, turn {turn}: byte {at}, bit {bit}"


def _outcome(folder: Path, whole: list[bytes]) -> str:
    try:
        logs, is_lost = found(folder)
    except DamagedBatch:
        return ""
    except KafkaError as error:
        return "" if "segment-" in error.message and "restore" in error.message else "no advice"
    return "" if is_lost or logs == whole else "other logs"


def _make_format_1(transaction: "lmdb.Transaction[bytes]") -> None:
    """Turn the segment into one that an older release wrote."""
    for key, value in list(transaction.cursor()):
        number, _, chunk = KEY.unpack(key)
        if chunk == CHECK:
            transaction.delete(key)
        elif number == KEY.unpack(epoch_key(0, 0))[0]:
            transaction.put(key, bytes(value[: OFFSET.size]))
    transaction.put(IDENTITY_KEY, IDENTITY_VALUE.pack(FORMAT_WITHOUT_CHECKS, 1))


def test_a_segment_of_format_1_is_read_and_never_written(folder: Path) -> None:
    whole, _ = found(folder)
    change(folder, _make_format_1)
    assert problems(folder) == []
    assert found(folder) == (whole, False)
    table = StoreTable.open(folder)
    assert 1 in table.footers()
    assert table.last_segment_id() == 2
    table.close()
    assert found(folder) == (whole, False)
    assert problems(folder) == []


def test_an_examination_changes_nothing(folder: Path) -> None:
    """An earlier release can still use the folder."""
    with LmdbFile(folder / "store.mdb") as file:
        rows = {name: dict(file.rows(name)) for name in DATABASES}
    (folder / "store.mdb").unlink()
    with (
        lmdb.open(str(folder / "store.mdb"), subdir=False, max_dbs=5) as environment,
        environment.begin(write=True) as transaction,
    ):
        for name, of in rows.items():
            handle = environment.open_db(name, transaction)
            for key, row in of.items():
                if key not in (b"sums", b"format"):
                    transaction.put(key, row[4:], db=handle)
        store = environment.open_db(b"store", transaction)
        transaction.put(b"format", struct.pack(">I", 1), db=store)
    data = (folder / "store.mdb").read_bytes()
    assert problems(folder) == []
    assert (folder / "store.mdb").read_bytes() == data
    assert not found(folder)[1]
    assert (folder / "store.mdb").read_bytes() != data


def test_a_segment_of_a_newer_format_is_refused(folder: Path) -> None:
    change(folder, lambda transaction: transaction.put(IDENTITY_KEY, IDENTITY_VALUE.pack(3, 1)))
    with pytest.raises(KafkaError, match="format 3, segment 1; expected 2, 1"):
        found(folder)


def test_an_unreadable_epoch_is_no_epoch(folder: Path) -> None:
    change(folder, lambda transaction: transaction.put(epoch_key(1, 0), struct.pack(">I", 1)))
    assert found(folder)[1]


async def _append(folder: Path, turns: int, segment_bytes: int = 16 << 20) -> None:
    async with opened(folder, segment_bytes=segment_bytes) as store:
        for turn in range(turns):
            for log in store.store.logs.values():
                log.append_as_leader(batch(1, 6000, seed=turn), EPOCH)
                await store.until_flushed(log)
        await store.store.housekeeping.idle()


def test_an_older_copy_of_the_active_segment_is_noticed(folder: Path) -> None:
    older = segment_path(folder).read_bytes()
    asyncio.run(_append(folder, 3))
    segment_path(folder).write_bytes(older)
    assert any("it is an older copy" in problem.what for problem in problems(folder))
    _, is_lost = found(folder)
    assert is_lost
    assert problems(folder) == []


def test_a_commit_that_changes_nothing_does_not_count(tmp_path: Path) -> None:
    """LMDB writes no such commit: a segment that was said to have it would look like an older
    copy."""
    segment = Segment.create(tmp_path, 1, "sync", 1 << 20)
    segment.append([])
    said = segment.commit
    segment.close()
    with LmdbFile(tmp_path / "segment-0000000001.mdb") as file:
        assert said <= file.newer.transaction


def test_an_older_copy_of_a_sealed_segment_is_noticed(folder: Path) -> None:
    older = segment_path(folder).read_bytes()
    asyncio.run(_append(folder, 1))
    asyncio.run(_append(folder, 6, segment_bytes=100_000))
    table = StoreTable.open(folder)
    assert 1 in table.footers()
    table.close()
    segment_path(folder).write_bytes(older)
    assert any("it is an older copy" in problem.what for problem in problems(folder))
    _, is_lost = found(folder)
    assert is_lost


def test_an_older_copy_of_the_table_is_noticed(folder: Path) -> None:
    """Segments that are newer than the table are not deleted."""
    older = (folder / "store.mdb").read_bytes()
    asyncio.run(_append(folder, 20, segment_bytes=100_000))
    newer = [one.name for one in sorted(folder.glob("segment-*.mdb"))[1:]]
    assert len(newer) > 1
    (folder / "store.mdb").write_bytes(older)
    told = [
        problem.segment for problem in problems(folder) if "newer than the table" in problem.what
    ]
    assert told == newer[: len(told)]
    assert told
    _, is_lost = found(folder)
    assert is_lost
    assert {f"{name}.damaged" for name in told} <= {one.name for one in folder.iterdir()}
    assert found(folder)[0]


def test_repair_puts_newer_segments_away(folder: Path) -> None:
    older = (folder / "store.mdb").read_bytes()
    asyncio.run(_append(folder, 20, segment_bytes=100_000))
    (folder / "store.mdb").write_bytes(older)
    assert "newer than the table" in quorate("log", "repair", "--log-dir", str(folder))
    assert not any("newer than the table" in problem.what for problem in problems(folder))
    assert found(folder)[1]


def test_repair_starts_over_where_the_table_is_damaged(folder: Path) -> None:
    table = folder / "store.mdb"
    data = bytearray(table.read_bytes())
    data[-100:] = bytes(100)
    table.write_bytes(data[: len(data) // 2])
    assert "quorate log repair" in quorate_error("log", "verify", "--log-dir", str(folder))
    assert "quorate log repair" in quorate_error("log", "dump", "--log-dir", str(folder))
    kept = segment_path(folder).read_bytes()
    assert "would set store.mdb" in quorate("log", "repair", "--log-dir", str(folder), "--dry-run")
    assert table.exists()
    told = quorate("log", "repair", "--log-dir", str(folder))
    assert "set store.mdb and all segments aside" in told
    assert (folder / "segment-0000000001.mdb.damaged").read_bytes() == kept
    assert (folder / "store.mdb.damaged").exists()

    async def is_lost() -> bool:
        async with opened(folder, new_folder_is_loss=True) as store:
            return store.store.log_may_be_lost

    assert asyncio.run(is_lost())
    assert problems(folder) == []


def test_what_is_set_aside_replaces_nothing(tmp_path: Path) -> None:
    for turn in range(3):
        segment_path(tmp_path).write_text(str(turn))
        set_aside(segment_path(tmp_path))
    assert sorted(one.read_text() for one in tmp_path.iterdir()) == ["0", "1", "2"]
