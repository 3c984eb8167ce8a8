"""A sound segment is read in bulk, with the same result as one by one; what is damaged is not."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import patched
from quorate.broker.log.segments import bulk_scan
from quorate.broker.log.segments.bulk_scan import Unusual, scan_in_bulk
from quorate.broker.log.segments.damage import DamagedBatch, DamagedSegment
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import SegmentContents
from quorate.broker.log.segments.segment_file import SegmentFile
from quorate.common.files.lmdb_pages import PageMap, raise_problem
from quorate.common.files.lmdb_tree import StoredValue, TreeWalk
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
    scan_in_bulk(file.read_at, file.root(), contents, breathe)
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


def test_other_threads_get_their_turn(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, 7, "os", 64 << 20)
    data = batch(1, 2_500)
    for first in range(0, 2_000, 100):
        segment.append([pending(0, first + n, 1, data) for n in range(100)])
    segment.close()
    file = SegmentFile(segment.path)
    turns: list[int] = []
    in_bulk(file, lambda: turns.append(1))
    assert len(turns) > 2_000 / 200
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
