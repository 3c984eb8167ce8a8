"""Sealed segments: footers, reading without LMDB, and damage that is found instead of served."""

import asyncio
import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import lmdb
import pytest
from crc32c import crc32c

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import patched
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.segments import segment as segment_module
from quorate.broker.log.segments.damage import DamagedBatch, DamagedSegment
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import FooterDamaged, SegmentContents, footer_crc
from quorate.broker.log.segments.segment_file import NotCached, OnDamaged, SegmentFile
from quorate.broker.log.segments.segment_keys import KEY
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.common.files.lmdb_pages import DatabaseRoot, OnProblem, PageMap
from quorate.common.files.lmdb_tree import TreeWalk
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened
from tests.support.record_batches import TRANSACTIONAL

SEGMENT_BYTES = 256 << 10
SIZES = [70, 1000, 3000, 20_000, (256 << 10) - 77, (256 << 10) - 76, 700_000]
"""Values inside LMDB's pages, in pages of their own, and in several chunks."""


def pending(number: int, base_offset: int, size: int) -> PendingBatch:
    data = batch(1, size, base_offset=base_offset, seed=base_offset + number)
    return PendingBatch(number, base_offset, base_offset, data, LeaderEpoch(3), 0, len(data))


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(tmp_path, 7, "sync", 16 << 20)


def fill(segment: Segment, batches: int = 60) -> list[PendingBatch]:
    """Batches of all sizes for a few partitions, in random order of partitions."""
    chosen = random.Random(1)
    ends = [0, 0, 0]
    written = []
    for _ in range(batches):
        number = chosen.randrange(3)
        written.append(pending(number, ends[number], chosen.choice(SIZES)))
        ends[number] += 1
    for first in range(0, batches, 4):
        segment.append(written[first : first + 4])
    return written


def check(segment: Segment, written: list[PendingBatch]) -> None:
    for one in written:
        chunks = segment.read(one.number, [(one.base_offset, one.size)])
        assert b"".join(chunks) == one.records


def flip(path: Path, at: int) -> None:
    _xor(path, at, 0x10)


def test_pages_are_read_as_lmdb_reads_them(segment: Segment) -> None:
    fill(segment, 400)
    segment.close()
    file = SegmentFile(segment.path)
    root = file.root()
    walk = TreeWalk(file.read_at, root, root.main, PageMap(root), start_bytes=20)
    found = [(one.key, file.value(one)) for one in walk.values()]
    file.close()
    with (
        lmdb.open(str(segment.path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        assert found == list(transaction.cursor())


def test_a_sealed_segment_is_read_as_before_and_lmdb_lets_go_of_it(segment: Segment) -> None:
    written = fill(segment)
    check(segment, written)
    segment.seal()
    check(segment, written)
    assert not segment.path.with_name(segment.path.name + "-lock").exists()
    maps = Path("/proc/self/maps").read_text(encoding="ascii")
    assert str(segment.path) not in maps
    segment.close()


def test_neighbours_come_in_one_piece_of_the_file(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [pending(0, offset, 60_000) for offset in range(10)]
    segment.append(batches)
    segment.seal()
    reads: list[int] = []
    read_at = SegmentFile.read_at

    def counted(self: SegmentFile, position: int, size: int) -> bytes:
        reads.append(size)
        return read_at(self, position, size)

    monkeypatch.setattr(SegmentFile, "read_at", counted)
    chunks = segment.read(0, [(one.base_offset, one.size) for one in batches])
    assert b"".join(chunks) == b"".join(one.records for one in batches)
    assert len(reads) == 1
    segment.close()


def test_small_batches_are_read_many_at_once_however_they_lie(segment: Segment) -> None:
    """LMDB fills a page from its end, and goes on in any page that is free."""
    chosen = random.Random(2)
    written: dict[int, list[PendingBatch]] = {number: [] for number in range(4)}
    for _ in range(200):
        group = []
        for number, batches in written.items():
            sizes = [chosen.choice([70, 500, 900, 5000]) for _ in range(chosen.randrange(4))]
            group += [pending(number, len(batches) + at, size) for at, size in enumerate(sizes)]
            batches += group[len(group) - len(sizes) :]
        segment.append(group)
    segment.seal()
    for number, batches in written.items():
        for first in (0, 1, 50):
            wanted = batches[first:]
            chunks = segment.read(number, [(one.base_offset, one.size) for one in wanted])
            assert b"".join(chunks) == b"".join(one.records for one in wanted)
    segment.close()


def test_what_is_not_cached_is_loaded_first_with_what_comes_next(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [pending(0, offset, 300_000) for offset in range(4)]
    segment.append([pending(3, 0, 1000), *batches])
    segment.seal()
    wanted = [(one.base_offset, one.size) for one in batches[:2]]
    told: list[tuple[int, int]] = []

    def empty_cache(_fd: int, _into: object, _at: int, _flags: int) -> int:
        raise BlockingIOError

    def advised(_fd: int, start: int, size: int, _advice: int) -> None:
        told.append((start, start + size))

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", empty_cache)
        patch.setattr(os, "posix_fadvise", advised)
        with pytest.raises(NotCached) as cold:
            segment.read(0, wanted, wait=False)
        cold.value.load()
        assert b"".join(segment.read(0, wanted)) == b"".join(one.records for one in batches[:2])
    assert segment.places is not None
    for place in range(4):
        for position, size in segment.places.chunks(place):
            for at in (position, position + size - 1):
                assert any(start <= at < end for start, end in told)
    monkeypatch.setattr(os, "preadv", _cached)
    assert b"".join(segment.read(0, wanted, wait=False)) == b"".join(
        one.records for one in batches[:2]
    )
    segment.close()


def _cached(descriptor: int, into: Sequence[memoryview], at: int, _flags: int) -> int:
    into[0][:] = os.pread(descriptor, len(into[0]), at)
    return len(into[0])


@pytest.mark.parametrize("answered", [errno.EOPNOTSUPP, errno.EIO])
def test_where_nobody_tells_what_is_cached_reads_wait(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    written = fill(segment, 5)
    segment.seal()
    monkeypatch.setattr(SegmentFile, "_tells_what_is_cached", True)

    def refuse(_fd: int, _into: object, _at: int, _flags: int) -> int:
        raise OSError(answered, "no")

    monkeypatch.setattr(os, "preadv", refuse)
    one = written[0]
    wanted = [(one.base_offset, one.size)]
    if answered == errno.EIO:
        with pytest.raises(DamagedBatch, match="no"):
            segment.read(one.number, wanted, wait=False)
    else:
        assert b"".join(segment.read(one.number, wanted, wait=False)) == one.records
    segment.close()


def test_a_file_that_is_closed_during_a_read_goes_with_the_read(segment: Segment) -> None:
    one = pending(0, 0, 20_000)
    segment.append([one])
    segment.seal()
    file = segment._file
    with file._used() as descriptor:
        segment.unlink()
        assert len(os.pread(descriptor, 10, 0)) == 10
    with pytest.raises(OSError, match="Bad file"):
        os.pread(descriptor, 10, 0)
    with pytest.raises(DamagedBatch, match=r"\.mdb is closed"):
        segment.read(0, [(0, one.size)])


def test_chunks_that_do_not_lie_side_by_side_are_found(segment: Segment) -> None:
    holes = [pending(1, offset, 280_000) for offset in range(8)]
    for one in holes:
        segment.append([one])
    kept = [pending(0, 0, 1000)]
    segment.append(kept)
    segment.delete_from([(1, 0)])
    scattered = [pending(2, offset, 700_000) for offset in range(4)]
    for one in scattered:
        segment.append([one])
    place = segment.seal()
    assert segment.places is not None
    assert segment.places.scattered, "the test is about them"
    check(segment, [*kept, *scattered])
    segment.close()
    again = Segment.open(segment.path, place)
    assert again.is_sealed
    check(again, [*kept, *scattered])
    again.close()


@pytest.mark.parametrize("size", [9000, 3000, 100])
def test_a_batch_that_replaced_a_longer_one_is_found(segment: Segment, size: int) -> None:
    """In one transaction LMDB leaves the shorter value all the pages of the longer one."""
    shorter, other = pending(0, 0, size), pending(1, 0, 3000)
    segment.append([pending(0, 0, 50_000), shorter, other])
    check(segment, [shorter, other])
    segment.seal()
    check(segment, [shorter, other])
    segment.close()


def test_a_footer_is_believed_only_if_all_of_it_is_right(segment: Segment) -> None:
    fill(segment)
    segment.seal()
    packed = segment._file.scan(7, lambda _: None).pack()
    crc = footer_crc(packed)
    assert SegmentContents.unpack(packed, 7, crc).pack() == packed
    for at in range(0, len(packed), 7):
        wrong = bytearray(packed)
        wrong[at] ^= 0x01
        with pytest.raises(FooterDamaged):
            SegmentContents.unpack(bytes(wrong), 7, crc)
    for wrong_bytes in (b"", packed[:-1], packed + b"x"):
        with pytest.raises(FooterDamaged):
            SegmentContents.unpack(wrong_bytes, 7, crc)
    with pytest.raises(FooterDamaged, match="segment 7"):
        SegmentContents.unpack(packed, 8, crc)
    with pytest.raises(FooterDamaged, match="expected"):
        SegmentContents.unpack(packed, 7, crc ^ 1)
    segment.close()


def test_a_footer_says_how_transactions_ended(segment: Segment) -> None:
    """So that a start reads none of their markers; where there are none, it is the older format."""
    markers = [EndMarker(7, 2, True, 5), EndMarker(8, 0, False, 6)]
    encoded = [
        batch(1, 300, base_offset=0, producer=(7, 2, 0), attributes=TRANSACTIONAL),
        *(
            patched(memoryview(encode_marker(marker, 1000)), 1 + place, LeaderEpoch(3))
            for place, marker in enumerate(markers)
        ),
        batch(1, 300, base_offset=3),
    ]
    segment.append(
        [PendingBatch(4, place, place, data, 3, 0, len(data)) for place, data in enumerate(encoded)]
    )
    footer = segment.seal()
    contents = SegmentFile(segment.path).footer(footer, 7)
    assert [contents.marker(place) for place in range(4)] == [None, *markers, None]
    assert contents.has_transactions
    assert Segment.open(segment.path, footer).is_sealed
    plain = SegmentContents(7, 0)
    assert SegmentContents.unpack(plain.pack(), 7, footer_crc(plain.pack())).marker(0) is None
    assert (plain.pack()[4], contents.pack()[4]) == (1, 2)
    cut = contents.pack()[:-5]
    with pytest.raises(FooterDamaged):
        SegmentContents.unpack(cut + crc32c(cut).to_bytes(4, "little"), 7, crc32c(cut))


def test_a_wrong_footer_is_replaced_by_a_look_at_the_pages(segment: Segment) -> None:
    written = fill(segment)
    place = segment.seal()
    segment.close()
    flip(segment.path, place.position + 100)
    again = Segment.open(segment.path, place)
    was_sealed = again.is_sealed
    check(again, written)
    place = again.seal()
    check(again, written)
    again.close()
    third = Segment.open(segment.path, place)
    assert (was_sealed, third.is_sealed) == (False, True)
    third.close()


def test_lmdb_still_takes_a_file_with_a_footer(segment: Segment) -> None:
    """What an older release opens it with."""
    written = fill(segment)
    segment.seal()
    segment.close()
    with (
        lmdb.open(str(segment.path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        for one in written:
            assert transaction.get(KEY.pack(one.number, one.base_offset, 0)) is not None


@pytest.mark.parametrize("sealed", [False, True])
def test_a_flipped_bit_is_never_served(segment: Segment, sealed: bool) -> None:
    """Every part of a batch: base offset, header, records; read before it was sealed, and after."""
    one = pending(2, 5, 20_000)
    segment.append([one])
    if sealed:
        segment.seal()
    where = segment.path.read_bytes().index(one.records)
    for at in (0, 7, 8, 11, 16, 17, 21, 40, 61, 10_000, one.size - 1):
        flip(segment.path, where + at)
        with pytest.raises(DamagedBatch, match="number 2") as found:
            segment.read(2, [(5, one.size)])
        assert found.value.code == errors_pb2.KAFKA_STORAGE_ERROR
        assert (found.value.base_offset, found.value.path) == (5, segment.path)
        flip(segment.path, where + at)
    check(segment, [one])
    segment.close()


def test_a_truncated_sealed_segment_answers_with_an_error_for_what_is_gone(
    segment: Segment,
) -> None:
    written = [pending(0, offset, 60_000) for offset in range(20)]
    segment.append(written)
    segment.seal()
    with segment.path.open("r+b") as file:
        file.truncate(segment.path.stat().st_size // 2)
    check(segment, written[:5])
    with pytest.raises(DamagedBatch):
        segment.read(0, [(19, written[19].size)])
    segment.close()
    with pytest.raises(DamagedSegment, match="truncated"):
        Segment.open(segment.path)


def test_pages_that_lmdb_never_wrote_are_not_missing(segment: Segment) -> None:
    """What one transaction takes and gives back is counted, and not written: the file may end
    before the last page."""
    kept = []
    appended = [([2, 4, 2, 5], 3, 1000), ([5, 3, 2, 5], 2, 1000), ([6, 2, 5], 3, 3000)]
    ends = [0] * 10
    for numbers, count, size in appended:
        batches = []
        for number in numbers:
            batches += [pending(number, ends[number] + each, size) for each in range(count)]
            ends[number] += count
        segment.append(batches)
        kept += [one for one in batches if one.number not in (2, 5, 3)]
    segment.delete_from([(2, 0), (5, 0), (3, 0)])
    assert segment.used_bytes > segment.path.stat().st_size
    segment.close()
    reopened = Segment.open(segment.path)
    check(reopened, kept)
    reopened.seal()
    check(reopened, kept)
    reopened.close()


def test_pages_that_are_wrong_are_noticed(segment: Segment) -> None:
    """Whatever is wrong with LMDB's own pages: the batches are as they were, or it is said."""
    written = [pending(offset % 3, offset, 3000 if offset % 2 else 100) for offset in range(200)]
    for first in range(0, len(written), 4):
        segment.append(written[first : first + 4])
    root = segment._file.root()
    segment.close()
    sound = segment.path.read_bytes()
    chosen = random.Random(2)
    expected = {(one.number, one.base_offset): one.records for one in written}
    noticed = 0
    pages = [number for number in range(root.last_page + 1) if _is_tree(sound, root, number)]
    for _ in range(200):
        at = chosen.choice(pages) * root.page_bytes + chosen.randrange(root.page_bytes)
        bit = 1 << chosen.randrange(8)
        _xor(segment.path, at, bit)
        told: list[DamagedBatch] = []
        file = SegmentFile(segment.path)
        try:
            contents = file.scan(7, told.append)
            for place, (number, base) in enumerate(
                zip(contents.numbers, contents.base_offsets, strict=True)
            ):
                found = file.read_batches(contents, number, [(base, contents.sizes[place])])
                assert b"".join(found) == expected[number, base]
            noticed += bool(told)
        except KafkaError:
            noticed += 1
        finally:
            file.close()
            _xor(segment.path, at, bit)
    assert noticed > 30
    assert segment.path.read_bytes() == sound


@pytest.mark.parametrize("wrong", ["number", "kind"])
def test_a_page_that_is_another_is_not_walked(segment: Segment, wrong: str) -> None:
    for first in range(0, 400, 4):
        segment.append([pending(0, offset, 100) for offset in range(first, first + 4)])
    root = segment._file.root()
    segment.close()
    file = SegmentFile(segment.path)
    _xor(segment.path, root.main.root * root.page_bytes + (0 if wrong == "number" else 10), 0x03)
    with pytest.raises(DamagedSegment, match=f"page {root.main.root} says"):
        file.scan(7, lambda _: None)
    file.close()


def _xor(path: Path, at: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bits]))


def _is_tree(data: bytes, root: DatabaseRoot, number: int) -> bool:
    """Roots, branches and leaves by their kind; overflow pages are the batches'."""
    at = number * root.page_bytes
    return data[at : at + 8] == number.to_bytes(8, "little") and data[at + 10] in (1, 2, 8)


def test_reading_goes_on_while_a_segment_is_sealed(segment: Segment) -> None:
    written = fill(segment, 100)

    async def read_on() -> None:
        sealing = asyncio.create_task(asyncio.to_thread(segment.seal))
        while not sealing.done():
            check(segment, written[:10])
            await asyncio.sleep(0)
        await sealing

    asyncio.run(read_on())
    check(segment, written)
    segment.close()


async def write(store: OpenStore, *, segments: int, topic: str = "t") -> None:
    log = store.log(topic)
    first = store.store.segments.newest.id
    while store.store.segments.newest.id < first + segments:
        log.append_as_leader(
            batch(5, 20_000, seed=log.log_end_offset, timestamp_ms=100 * log.log_end_offset), EPOCH
        )
        await store.until_flushed(log)
    await store.store.housekeeping.idle()


async def test_sealed_segments_are_opened_by_their_footers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await write(store, segments=4)
        complete = everything(store.log())
        last = store.store.segments.newest.id
    scanned: list[int] = []
    scan = SegmentFile.scan

    def noted(
        self: SegmentFile, segment_id: int, on_damaged: OnDamaged, *, on_problem: OnProblem
    ) -> SegmentContents:
        scanned.append(segment_id)
        return scan(self, segment_id, on_damaged, on_problem=on_problem)

    monkeypatch.setattr(SegmentFile, "scan", noted)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log()) == complete
    assert set(scanned) <= {last, last + 1}


async def test_segments_without_footers_get_them_at_the_start(tmp_path: Path) -> None:
    """As after a crash right behind a roll, or in a folder of an older release."""
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await write(store, segments=3)
        complete = everything(store.log())
    _without_footers(tmp_path)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log()) == complete
    table = StoreTable.open(tmp_path)
    assert set(table.footers()) >= {1, 2, 3}
    table.close()


async def test_a_full_disk_keeps_no_store_from_opening_for_want_of_footers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await write(store, segments=3)
        complete = everything(store.log())
    _without_footers(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "_write_durably", full)
        async with opened(tmp_path, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
            assert everything(store.log()) == complete
            assert not store.store.log_may_be_lost
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log()) == complete
    table = StoreTable.open(tmp_path)
    assert set(table.footers()) >= {1, 2, 3}
    table.close()


async def test_an_unreadable_segment_is_set_aside_and_counts_as_lost(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await write(store, segments=3)
        complete = everything(store.log())
    path = tmp_path / "segment-0000000002.mdb"
    path.write_bytes(b"nothing of what was there" * 1000)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert store.store.log_may_be_lost
        found = everything(store.log())
        assert 0 < len(found) < len(complete)
        assert complete.startswith(found)
    assert path.with_name(path.name + ".damaged").exists()
    assert not path.exists()


async def test_a_log_on_the_disk_alone_is_read_by_loading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        store.create()
        await write(store, segments=3)
        complete = everything(store.log())
    loads = 0
    is_loaded = False

    def uncached(descriptor: int, into: Sequence[memoryview], at: int, flags: int) -> int:
        return _cached(descriptor, into, at, flags) if is_loaded else len(into[0]) // 2

    monkeypatch.setattr(os, "preadv", uncached)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
        log, at, found = store.log(), 0, bytearray()
        while at < log.log_end_offset:
            try:
                read = log.read(at, 60_000, log.log_end_offset, wait=False)
            except ColdRead as cold:
                loads += 1
                await cold.load()
                is_loaded = True
                read = log.read(at, 60_000, log.log_end_offset, wait=False)
                is_loaded = False
            at, found = read.next_offset, found + b"".join(read.chunks)
    assert found == complete
    assert loads > 3


async def test_what_lies_before_a_damaged_batch_is_served_and_somebody_is_told(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        log = store.create()
        await write(store, segments=2)
    flip(tmp_path / "segment-0000000001.mdb", _place_of(tmp_path, offset=20) + 5000)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        told: list[tuple[StoredLog, int]] = []
        store.on_damaged = lambda one, damage: told.append(
            (one, cast(DamagedBatch, damage).base_offset)
        )
        log = store.log()
        read = log.read(0, 1 << 20, log.log_end_offset)
        assert (read.next_offset, read.size) == (20, sum(map(len, read.chunks)))
        with pytest.raises(DamagedBatch) as found:
            log.read(22, 1 << 20, log.log_end_offset)
        assert found.value.base_offset == 20
        with pytest.raises(DamagedBatch):
            log.offset_for_timestamp(2000, log.log_end_offset)
        assert log.read(25, 1 << 20, log.log_end_offset).next_offset == log.log_end_offset
        assert set(told) == {(log, 20)}


def _without_footers(folder: Path) -> None:
    table = StoreTable.open(folder)
    with table._writing() as rows:
        for key, _ in list(rows.rows(b"segments")):
            rows.put(b"segments", key, b"\1")
    assert table.footers() == {}
    table.close()


def _place_of(folder: Path, *, offset: int) -> int:
    """Where the first segment has the batch of partition number 0."""
    table = StoreTable.open(folder)
    segment = Segment.open(folder / "segment-0000000001.mdb", table.footers()[1])
    table.close()
    assert segment.places is not None
    position = segment.places.positions[segment.places.place_of(0, offset)]
    segment.close()
    return position
