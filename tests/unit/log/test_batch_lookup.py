"""What a segment has: in LMDB while it is written, and by the places of its batches once sealed."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import lmdb
import pytest

from quorate.broker.log.segments.batch_places import CHUNK_BYTES, BatchPlaces
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_keys import CHECK, KEY
from tests.support.log_stores import batch

NUMBER = 7
BATCHES = [batch(base_offset=0), batch(base_offset=1, size=CHUNK_BYTES), batch(base_offset=2)]
WANTED = [(offset, len(data)) for offset, data in enumerate(BATCHES)]


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    """Return an active segment with three batches, the second of two chunks."""
    created = Segment.create(tmp_path, 1, "os", 1 << 20)
    pending = [
        PendingBatch(NUMBER, offset, offset, data, -1, 0, len(data))
        for offset, data in enumerate(BATCHES)
    ]
    created.append(pending)
    yield created
    created.close()


def _delete(segment: Segment, base_offset: int, chunk: int) -> None:
    environment: lmdb.Environment | None = segment._environment
    assert environment is not None
    with environment.begin(write=True) as transaction:
        assert transaction.delete(KEY.pack(NUMBER, base_offset, chunk))


def test_all_chunks_of_the_wanted_batches_are_found(segment: Segment) -> None:
    chunks = segment.read(NUMBER, WANTED)
    assert [len(chunk) for chunk in chunks][1] == CHUNK_BYTES
    assert len(chunks) == 4
    assert b"".join(chunks) == b"".join(BATCHES)


@pytest.mark.parametrize(
    ("base_offset", "chunk", "problem"),
    [
        (0, 0, "is not there"),
        (1, 1, "is not there"),
        (2, 0, "is not there"),
        (1, CHECK, "header is not what was written"),
    ],
)
def test_the_first_batch_that_lacks_a_value_is_named(
    segment: Segment, base_offset: int, chunk: int, problem: str
) -> None:
    _delete(segment, base_offset, chunk)
    with pytest.raises(DamagedBatch, match=problem) as damaged:
        segment.read(NUMBER, WANTED)
    assert damaged.value.base_offset == base_offset


def test_an_append_that_failed_leaves_the_segment_writable(segment: Segment) -> None:
    class NoBuffer:
        def __getitem__(self, _: slice) -> bytes:
            return b"the start of a batch"

    data = batch(base_offset=3)
    good = PendingBatch(NUMBER, 3, 3, data, -1, 0, len(data))
    bad = PendingBatch(NUMBER, 4, 4, cast("bytes", NoBuffer()), -1, 0, 20)
    with pytest.raises(TypeError) as failure:
        segment.append([good, bad])
    with pytest.raises(DamagedBatch, match="is not there"):
        segment.read(NUMBER, [(3, len(data))])
    segment.append([good])  # Although the error still holds the frame of the append.
    assert failure.value.__traceback__ is not None
    assert segment.read(NUMBER, [(3, len(data))]) == [data]


def places(*batches: tuple[int, int, int]) -> BatchPlaces:
    """Return the places of batches, given as (partition number, base offset, size)."""
    made = BatchPlaces()
    for place, (number, base_offset, size) in enumerate(batches):
        made.numbers.append(number)
        made.base_offsets.append(base_offset)
        made.sizes.append(size)
        made.positions.append(4096 * place)
        made.leader_epochs.append(0)
    return made


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([(0, 10), (5, 20), (9, 30)], [1, 2, 3]),
        ([(5, 20), (9, 30)], [2, 3]),
        ([(0, 10), (9, 30)], [1, 3]),  # (5, 20) was replaced by a version in another segment.
        ([(0, 10), (5, 21), (9, 30)], [1]),
        ([(9, 30), (12, 40)], [3]),  # (12, 40) is of another partition.
        ([(3, 10)], []),
    ],
)
def test_batches_are_found_side_by_side_or_one_by_one(
    wanted: list[tuple[int, int]], found: list[int]
) -> None:
    stored = places((6, 0, 10), (7, 0, 10), (7, 5, 20), (7, 9, 30), (8, 12, 40))
    assert list(stored.find(7, wanted)) == found


def test_chunks_are_the_same_side_by_side_and_one_by_one() -> None:
    stored = places((7, 0, 10), (7, 5, CHUNK_BYTES + 1), (7, 9, 30))
    assert stored.chunks_of(range(3)) == stored.chunks_of([0, 1, 2])
    assert stored.chunks_of(range(1)) == stored.chunks_of([0]) == [(0, 10)]
