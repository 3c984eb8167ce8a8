"""A sound segment is read in bulk, with the same result as one by one; what is damaged is not."""

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import check_of, patched
from quorate.broker.log.segments import bulk_scan
from quorate.broker.log.segments.bulk_scan import Unusual, scan_in_bulk
from quorate.broker.log.segments.damage import DamagedBatch, DamagedSegment
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import SegmentContents
from quorate.broker.log.segments.segment_file import SegmentFile
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    EPOCHS,
    FORMAT,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    packed_epoch,
)
from quorate.common.files.lmdb_pages import PageMap, raise_problem
from quorate.common.files.lmdb_tree import IS_OVERFLOWING, NODE, StoredValue, TreeWalk
from quorate.common.types import LeaderEpoch
from tests.support.log_stores import batch

SIZES = [70, 70, 1000, 3000, 20_000, (256 << 10) - 77, (256 << 10) - 76, 700_000]
PAGE = 4096
FLIPS = 1_000


def refuse(damaged: DamagedBatch) -> None:
    raise damaged


def pending(number: int, base_offset: int, epoch: int, data: bytes) -> PendingBatch:
    placed = patched(memoryview(data), base_offset, LeaderEpoch(epoch))
    return PendingBatch(
        number, base_offset, base_offset, placed, LeaderEpoch(epoch), base_offset, len(placed)
    )


def filled(folder: Path, seed: int, batches: int, sizes: Sequence[int] = SIZES) -> Path:
    """A segment that was written as brokers do: in groups, with epochs, markers and truncations."""
    chance = random.Random(seed)
    segment = Segment.create(folder, 7, "os", 64 << 20)
    ends, epoch = [0] * 5, 1
    for _ in range(batches // 5):
        group = []
        for _ in range(5):
            number = chance.randrange(5)
            if chance.random() < 0.1:
                marker = EndMarker(9, 1, chance.random() < 0.5, chance.randrange(3))
                data = encode_marker(marker, 1_000)
            else:
                data = batch(1, chance.choice(sizes), seed=chance.randrange(1 << 20))
            group.append(pending(number, ends[number], epoch, data))
            ends[number] += 1
        segment.append(group)
        if chance.random() < 0.1:
            number = chance.randrange(5)
            ends[number] = max(0, ends[number] - chance.randrange(3))
            segment.delete_from([(number, ends[number])])
            epoch += 1
    segment.close()
    return segment.path


def in_bulk(file: SegmentFile, breathe: Callable[[], None] = lambda: None) -> SegmentContents:
    contents = SegmentContents(7, file.modified_at_ms)
    scan_in_bulk(file._read_at_once, file.root(), contents, breathe)
    return contents


def one_by_one(file: SegmentFile) -> SegmentContents:
    return file._scan_one_by_one(7, refuse, lambda: None, raise_problem)


@pytest.mark.parametrize("seed", range(6))
def test_a_sound_segment_is_read_as_one_by_one(tmp_path: Path, seed: int) -> None:
    file = SegmentFile(filled(tmp_path, seed, [5, 60, 300][seed % 3]))
    assert in_bulk(file).pack() == one_by_one(file).pack()
    file.close()


def test_an_empty_segment_has_no_batches(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, 7, "os", 1 << 20)
    segment.close()
    file = SegmentFile(segment.path)
    assert len(in_bulk(file)) == 0
    file.close()


@pytest.mark.parametrize(("size", "least", "most"), [(100, 4, 30), (1_900, 30, 60), (2_500, 8, 30)])
def test_other_threads_get_their_turn_but_not_all_the_time(
    tmp_path: Path, size: int, least: int, most: int
) -> None:
    """Between two breaths there is about a millisecond of work, however many batches a page has."""
    segment = Segment.create(tmp_path, 7, "os", 64 << 20)
    data = batch(1, size)
    for first in range(0, 2_000, 100):
        segment.append([pending(0, first + n, 1, data) for n in range(100)])
    segment.close()
    file = SegmentFile(segment.path)
    turns: list[int] = []
    in_bulk(file, lambda: turns.append(1))
    assert least <= len(turns) <= most
    file.close()


def is_told(path: Path) -> bool:
    """Whether bulk leaves the file to the scan that tells of damage. Otherwise both agree."""
    file = SegmentFile(path)
    try:
        contents = in_bulk(file)
    except (Unusual, DamagedSegment):
        return True
    else:
        assert contents.pack() == one_by_one(file).pack()
        return False
    finally:
        file.close()


def flipped(path: Path, sound: bytes, at: int, mask: int) -> None:
    wrong = bytearray(sound)
    wrong[at] ^= mask
    path.write_bytes(wrong)


def test_no_flipped_bit_is_taken_for_other_contents(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, 60, SIZES[:4])
    file = SegmentFile(path)
    used_bytes = file.root().used_bytes
    file.close()
    sound = path.read_bytes()[:used_bytes]
    chance = random.Random(11)
    told = 0
    for _ in range(FLIPS):
        # Half of the flips are in the first bytes of a page, where LMDB has what it needs.
        page, within = chance.randrange(used_bytes // PAGE), chance.randrange(PAGE)
        at = page * PAGE + (within if chance.random() < 0.5 else within % 80)
        flipped(path, sound, at, 1 << chance.randrange(8))
        told += is_told(path)
    assert told > FLIPS / 20, "many of the flips are damage"


def starts(path: Path) -> list[int]:
    """The positions of the batches that fill pages of their own."""
    file = SegmentFile(path)
    root = file.root()
    walk = TreeWalk(file.read_at, root, root.main, PageMap(root))
    found = [value.position for value in walk.values() if value.size > 2_500]
    file.close()
    return found


@pytest.mark.parametrize("at", range(-16, 21))
def test_page_numbers_and_headers_are_checked(tmp_path: Path, at: int) -> None:
    """Bytes 8 and 9 of an overflow page are not used."""
    path = filled(tmp_path, 4, 30)
    sound = path.read_bytes()
    flipped(path, sound, starts(path)[0] + at, 0x04)
    assert is_told(path) == (at not in (-8, -7))


def overflow_nodes(path: Path) -> list[int]:
    """The positions of the nodes whose values fill pages of their own."""
    file = SegmentFile(path)
    root = file.root()
    leaf = next(TreeWalk(file.read_at, root, root.main, PageMap(root)).leaves())
    file.close()
    return [
        leaf.number * PAGE + at
        for at in leaf.offsets
        if NODE.unpack_from(leaf.page, at)[1] == IS_OVERFLOWING
    ]


@pytest.mark.parametrize("bit", range(64))
def test_no_bit_of_a_page_number_is_believed(tmp_path: Path, bit: int) -> None:
    path = filled(tmp_path, 4, 30)
    at = overflow_nodes(path)[0] + NODE.size + KEY.size
    flipped(path, path.read_bytes(), at + bit // 8, 1 << bit % 8)
    assert is_told(path)
    with pytest.raises((KafkaError, DamagedSegment)):
        SegmentFile(path).scan(7, refuse)


@pytest.mark.parametrize("size", [0, 12, 60])
def test_a_value_on_pages_of_its_own_is_larger_than_a_header(tmp_path: Path, size: int) -> None:
    path = filled(tmp_path, 4, 30)
    at, sound = overflow_nodes(path)[0], bytearray(path.read_bytes())
    struct.pack_into("=I", sound, at, size)
    path.write_bytes(sound)
    assert is_told(path)


Rows = list[tuple[bytes, bytes]]


def write(path: Path, rows: Rows) -> None:
    """Put rows into a file of LMDB, in one transaction."""
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in rows:
            transaction.put(key, value)


def _checked(data: bytes, *pieces: tuple[int, bytes]) -> Rows:
    check = KEY.pack(1, 5, CHECK)
    rows = [(KEY.pack(1, 5, chunk), piece) for chunk, piece in pieces]
    return [*rows, (check, check_of(check, data))]


def _odd_rows() -> dict[str, Rows]:
    data = patched(memoryview(batch(1, 1_000)), 5, LeaderEpoch(1))
    return {
        "an empty piece": _checked(data, (0, data), (1, b"")),
        "no first piece": _checked(data, (1, data)),
        "no check": _checked(data, (0, data))[:-1],
        "a check alone": _checked(data)[-1:],
        "a piece is missing": _checked(data, (0, data[:500]), (2, data[500:])),
        "an epoch twice": [
            (key, packed_epoch(key, 0)) for key in (KEY.pack(EPOCHS, 1 << 32, n) for n in (0, 1))
        ],
        "another length of key": [(b"key", b"value")],
    }


@pytest.mark.parametrize("name", _odd_rows())
def test_what_brokers_do_not_write_is_told(tmp_path: Path, name: str) -> None:
    segment = Segment.create(tmp_path, 7, "os", 1 << 20)
    segment.close()
    write(segment.path, _odd_rows()[name])
    assert is_told(segment.path)


def test_a_value_that_replaced_a_longer_one_needs_only_its_own_pages(tmp_path: Path) -> None:
    """LMDB leaves it all the pages of the longer one. The file may end before the last of them."""
    path = tmp_path / "segment-0000000007.mdb"
    longer, shorter = (
        patched(memoryview(batch(1, size)), 5, LeaderEpoch(1)) for size in (60_000, 3_000)
    )
    rows = [(IDENTITY_KEY, IDENTITY_VALUE.pack(FORMAT, 7)), (KEY.pack(1, 5, 0), longer)]
    write(path, [*rows, *_checked(shorter, (0, shorter))])
    path.write_bytes(path.read_bytes()[:-PAGE])
    assert is_told(path)
    file = SegmentFile(path)
    assert list(file.scan(7, refuse).sizes) == [len(shorter)]
    file.close()


def test_a_check_that_is_not_made_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above notice a scan that believes every check."""
    path = filled(tmp_path, 4, 30)
    sound = path.read_bytes()
    flipped(path, sound, starts(path)[0] + 15, 0x04)
    file = SegmentFile(path)
    by_key = {value.key: value.start for value in _values(file)}
    monkeypatch.setattr(bulk_scan, "check_of", lambda key, _: by_key[key])
    assert len(in_bulk(file)) > 0
    with pytest.raises(KafkaError):
        one_by_one(file)
    file.close()


def _values(file: SegmentFile) -> list[StoredValue]:
    root = file.root()
    return [*TreeWalk(file.read_at, root, root.main, PageMap(root), start_bytes=61).values()]
