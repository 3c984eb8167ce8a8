"""``quorate log``: folders of stopped brokers, damaged in every way a disk knows."""

import json
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import HEADER_BYTES
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.common.files.data_folder import claimed_data_folder, held_data_folder
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.log_stores import EPOCH, batch, everything, opened
from tests.support.record_batches import TRANSACTIONAL

SEGMENT_BYTES = 1 << 20
BODY_BYTES = 100_000
BATCH_BYTES = HEADER_BYTES + BODY_BYTES
SEGMENT = "segment-0000000001.mdb"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Two partitions of 40 batches each, over several segments."""
    with claimed_data_folder(tmp_path, "broker", 1, "cluster"):
        pass
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        logs = [store.create("orders", 0), store.create("orders", 1)]
        for _ in range(40):
            for log in logs:
                log.append_as_leader(batch(1, BODY_BYTES), EPOCH)
            await store.until_flushed(*logs)
    return tmp_path


def verified(folder: Path) -> list[dict[str, Any]]:
    """The problems found; the exit code says whether there are any."""
    told = quorate("log", "verify", "--log-dir", str(folder), "--json", code=_code(folder))
    problems: list[dict[str, Any]] = json.loads(told)
    return problems


def _code(folder: Path) -> int:
    return 1 if (folder / "damaged").exists() else 0


def damage(folder: Path) -> None:
    """From now on a problem is expected."""
    (folder / "damaged").touch()


def offsets(folder: Path) -> dict[int, tuple[int, int]]:
    found = quorate_json("log", "dump", "--log-dir", str(folder))
    return {one["partition"]: (one["log_start_offset"], one["end_offset"]) for one in found}


def flip_a_byte(path: Path, *, of_offset: int, partition: int) -> None:
    """In the records of a batch, found by its place in the log and the partition's number."""
    data = bytearray(path.read_bytes())
    header = of_offset.to_bytes(8, "big") + (BATCH_BYTES - 12).to_bytes(4, "big")
    at = -1
    for _ in range(partition + 1):
        at = data.index(header, at + 1)
    data[at + BATCH_BYTES // 2] ^= 1
    path.write_bytes(data)


async def test_a_sound_folder_has_no_problems_and_is_shown(folder: Path) -> None:
    assert verified(folder) == []
    assert offsets(folder) == {0: (0, 40), 1: (0, 40)}
    (first, *_) = quorate_json(
        "log",
        "dump",
        "--log-dir",
        str(folder),
        "--topic",
        "orders",
        "--partition",
        "1",
        "--batches",
    )
    assert [one["base_offset"] for one in first["batches"]] == list(range(40))
    assert {one["size"] for one in first["batches"]} == {BATCH_BYTES}
    segments = quorate_json("log", "dump", "--log-dir", str(folder), "--segments")
    assert len(segments) > 3
    assert sum(one["batches"] for one in segments) == 80
    assert "nothing to repair" in quorate("log", "repair", "--log-dir", str(folder))


async def test_transactions_and_their_ends_are_shown(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create("orders", 0)
        for producer_id, sequence in ((7, 0), (8, 0), (7, 1)):
            data = batch(producer=(producer_id, 2, sequence), attributes=TRANSACTIONAL)
            log.append_as_leader(data, EPOCH, AppendOrigin.TRANSACTIONAL_CLIENT)
        for marker in (EndMarker(7, 2, True, 5), EndMarker(9, 0, False, 5)):
            log.append_as_leader(encode_marker(marker, 1000), EPOCH, AppendOrigin.MARKERS)
        await store.until_flushed(log)
    (shown,) = quorate_json("log", "dump", "--log-dir", str(tmp_path), "--batches")
    kinds = [one["transaction"] for one in shown["batches"]]
    assert kinds == ["part", "part", "part", "commit", "abort"]
    assert shown["open_transactions"] == [
        {"producer_id": 8, "producer_epoch": 2, "first_offset": 1, "last_offset": 1}
    ]
    text = quorate("log", "dump", "--log-dir", str(tmp_path), "--batches")
    assert "open transaction of producer 8 epoch 2: offsets 1 to 1" in text
    assert "producer 7 epoch 2: commit" in text
    assert "producer 7 from sequence 1, in a transaction" in text


async def test_a_flipped_bit_is_named_and_cut_off(folder: Path) -> None:
    damage(folder)
    flip_a_byte(folder / SEGMENT, of_offset=2, partition=1)
    (problem,) = verified(folder)
    assert (problem["topic"], problem["partition"], problem["offset"]) == ("orders", 1, 2)
    assert problem["segment"] == SEGMENT
    assert "checksum" in problem["what"]
    (planned,) = quorate_json("log", "repair", "--log-dir", str(folder), "--dry-run")
    assert planned.startswith("cut orders-1 at offset 2 (")
    assert offsets(folder) == {0: (0, 40), 1: (0, 2)}, "nothing was done"
    quorate("log", "repair", "--log-dir", str(folder))
    assert "nothing to repair" in quorate("log", "repair", "--log-dir", str(folder))
    async with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        assert store.store.log_may_be_lost
        assert store.log("orders", 0).log_end_offset == 40
        cut = store.log("orders", 1)
        assert cut.log_end_offset == 2
        cut.append_as_leader(batch(1, BODY_BYTES), EPOCH)
        await store.until_flushed(cut)
        assert len(everything(cut)) == 3 * BATCH_BYTES
    async with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        assert store.log("orders", 1).log_end_offset == 3


@pytest.mark.parametrize("left", [0, 500_000])
async def test_a_truncated_segment_is_set_aside_and_the_rest_survives(
    folder: Path, left: int
) -> None:
    damage(folder)
    path = folder / SEGMENT
    with path.open("r+b") as file:
        file.truncate(left)
    problems = verified(folder)
    assert problems[0]["segment"] == SEGMENT
    assert not problems[0]["topic"]
    quorate("log", "repair", "--log-dir", str(folder))
    assert (folder / f"{SEGMENT}.damaged").stat().st_size == left
    async with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        assert store.store.log_may_be_lost
        for log in store.store.logs.values():
            assert log.log_end_offset == 0, "what follows the hole is not the log's any more"


async def test_a_missing_segment_is_named_with_what_it_makes_unreachable(folder: Path) -> None:
    damage(folder)
    (folder / SEGMENT).unlink()
    problems = verified(folder)
    assert "missing" in problems[0]["what"]
    assert {(one["partition"], one["offset"]) for one in problems[1:]} == {(0, 0), (1, 0)}
    assert all("gap" in one["what"] for one in problems[1:])


def test_what_is_no_log_folder_is_refused(tmp_path: Path) -> None:
    assert "is it the log.dir of a broker" in quorate_error(
        "log", "verify", "--log-dir", str(tmp_path)
    )
    assert "cannot use data folder" in quorate_error(
        "log", "dump", "--log-dir", str(tmp_path / "absent")
    )


async def test_an_unknown_topic_is_answered_with_those_there_are(folder: Path) -> None:
    error = quorate_error("log", "dump", "--log-dir", str(folder), "--topic", "order")
    assert "its topics are orders" in error


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store.mdb").touch()
    with held_data_folder(tmp_path):
        error = quorate_error("log", "repair", "--log-dir", str(tmp_path))
    assert "used by another process" in error


async def test_a_wrong_footer_is_named_and_the_next_start_mends_it(folder: Path) -> None:
    table = StoreTable.open(folder)
    place = table.footers()[1]
    table.close()
    data = bytearray((folder / SEGMENT).read_bytes())
    data[place.position + 60] ^= 1
    (folder / SEGMENT).write_bytes(data)
    damage(folder)
    (problem,) = verified(folder)
    assert (problem["segment"], problem["topic"]) == (SEGMENT, "")
    assert problem["what"].startswith("footer: ")
    assert "nothing to repair" in quorate("log", "repair", "--log-dir", str(folder))
    async with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        assert not store.store.log_may_be_lost
        assert store.log("orders", 1).log_end_offset == 40
    (folder / "damaged").unlink()
    assert verified(folder) == []


async def test_a_footer_that_tells_of_other_batches_is_named(folder: Path) -> None:
    segment = Segment.open(folder / SEGMENT)
    assert segment.contents is not None
    segment.contents.positions[0] += 4096
    place = segment.seal()
    segment.close()
    table = StoreTable.open(folder)
    table.record_footer(1, place)
    table.close()
    damage(folder)
    (problem,) = verified(folder)
    assert problem["what"].startswith("footer: it does not say what is in the segment")
    async with opened(folder, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
        with pytest.raises(DamagedBatch):
            store.log("orders", 0).read(0, 1, 40)


async def test_an_older_version_of_a_batch_does_not_count(folder: Path) -> None:
    """A damaged copy that a newer segment has replaced is no problem."""
    data = batch(1, BODY_BYTES, base_offset=2, seed=5)
    newest = Segment.open(max(folder.glob("segment-*.mdb")))
    newest.begin_writing("sync", SEGMENT_BYTES)
    newest.append([PendingBatch(1, 2, 2, data, EPOCH, 0, len(data))])
    newest.close()
    assert verified(folder) == []
    flip_a_byte(folder / SEGMENT, of_offset=2, partition=1)
    assert verified(folder) == []
    async with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        log = store.log("orders", 1)
        assert log.log_end_offset == 40
        assert b"".join(log.read(2, 1, 40).chunks) == data
