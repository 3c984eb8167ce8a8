"""A segment file read by ``pread``, without mapping it: found out what is in it, and its batches.

Damage shows as an error and never as a signal, cold pages come at the disk's speed, and no memory
is held by what was read. Used by several threads; ``close`` waits for nobody: the descriptor goes
with the last read that uses it.
"""

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from broker.errors import KafkaError
from broker.log.batch_places import CHUNK_BYTES, BatchPlaces
from broker.log.control_batches import decode_marker
from broker.log.damage import DamagedBatch, DamagedSegment
from broker.log.record_batch import HEADER_BYTES, read_header
from broker.log.segment_contents import (
    FooterPlace,
    SegmentContents,
    StoredBatch,
    StoredEpoch,
)
from broker.log.segment_keys import (
    EPOCHS,
    FORMAT,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    LAST_NUMBER,
    OFFSET,
)
from broker.log.segment_pages import (
    PagesDamaged,
    Root,
    Value,
    read_root,
    walk,
)
from broker.log.stored_batches import header_problem, verify
from quorate_proto.v1 import errors_pb2

_BATCHES_PER_BREATH: Final = 200
_ADVISED_BYTES: Final = 512 << 10
"""Asked for at once: of more, Linux reads only the beginning."""
_AHEAD_BYTES: Final = 8 << 20
"""Of a partition that is read from the disk, what is read ahead of its reader."""
_BRIDGED_BYTES: Final = 16 << 10
"""Bytes between two batches that are read along: cheaper than another call."""

Stored = tuple[int, int, list[Value]]
"""Partition number, base offset and pieces of a batch."""
OnDamaged = Callable[[DamagedBatch], None]


def _go_on() -> None:
    """Where nobody else needs the processor."""


class NotCached(Exception):
    """What was asked for would have to be waited for: ``load`` does, on another thread."""

    def __init__(self, load: Callable[[], None]) -> None:
        super().__init__("not in the page cache")
        self.load = load


class _Stretch(NamedTuple):
    """Bytes of the file that are read by one call; so many chunks, one after the other."""

    position: int
    size: int
    chunks: int


class SegmentFile:
    """The file, open for reading."""

    _tells_what_is_cached = hasattr(os, "RWF_NOWAIT")
    """Whether file system and kernel answer at once what they have not in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._users = 1
        """The one who opened it, and every read that goes on."""
        self._is_closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Nothing is read from now on; what is being read goes on."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._release()

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    @property
    def modified_at_ms(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def read_at(self, position: int, size: int) -> bytes:
        """That many bytes, fewer only at the end of the file."""
        with self._used() as descriptor:
            data = os.pread(descriptor, size, position)
            while len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        return data

    def _read_at_once(self, position: int, size: int) -> bytes:
        """As ``read_at``, of a file that nobody closes meanwhile."""
        return os.pread(self._descriptor, size, position)

    def sync(self) -> None:
        """Make all of it durable, whoever wrote it."""
        with self._used() as descriptor:
            os.fsync(descriptor)

    def read_soon(self, position: int, size: int) -> None:
        """Have the system read this part of it ahead."""
        with self._used() as descriptor:
            for done in range(0, size, _ADVISED_BYTES):
                piece = min(_ADVISED_BYTES, size - done)
                os.posix_fadvise(descriptor, position + done, piece, os.POSIX_FADV_WILLNEED)

    def root(self) -> Root:
        """LMDB's newest commit.

        Raises:
            DamagedSegment: there is none.
        """
        try:
            return read_root(self.read_at, self.size_bytes)
        except PagesDamaged as error:
            raise DamagedSegment(self.path, str(error)) from error

    def footer(self, place: FooterPlace, segment_id: int) -> SegmentContents:
        """The contents as the footer has them.

        Raises:
            FooterDamaged: it is not there, or not the one that was written.
        """
        return SegmentContents.unpack(
            self.read_at(place.position, place.size), segment_id, place.crc
        )

    def scan(
        self, segment_id: int, on_damaged: OnDamaged, breathe: Callable[[], None] = _go_on
    ) -> SegmentContents:
        """The contents by LMDB's pages and each batch's header; wrong batches are left out.

        ``breathe`` is called about every millisecond of work.

        Raises:
            DamagedSegment: its pages are damaged, or it is not a segment.
            KafkaError: KAFKA_STORAGE_ERROR; it is of another format, or another segment.
        """
        stored, epochs = self._walk(segment_id, breathe)
        batches: list[StoredBatch] = []
        for number, base_offset, values in stored:
            if not len(batches) % _BATCHES_PER_BREATH:
                breathe()
            try:
                batches.append(self._stored_batch(number, base_offset, values))
            except DamagedBatch as damaged:
                on_damaged(damaged)
        return SegmentContents.of(segment_id, self.modified_at_ms, batches, epochs)

    def stored(self, segment_id: int) -> list[Stored]:
        """Every batch by LMDB's pages: partition number, base offset, pieces. Reads none of them.

        Raises: as ``scan``.
        """
        return self._walk(segment_id)[0]

    def value(self, value: Value) -> bytes:
        """The bytes of a value."""
        return self.read_at(value.position, value.size)

    def read_batches(
        self,
        places: BatchPlaces,
        number: int,
        wanted: Sequence[tuple[int, int]],
        *,
        wait: bool = True,
    ) -> list[memoryview]:
        """The batches ``wanted``, (base offset, size) each, chunk by chunk, each verified.

        Raises:
            DamagedBatch: one is missing, or not what was written.
            NotCached: it would have to be waited for, and ``wait`` is False.
        """
        chunks: list[tuple[int, int]] = []
        place = -1
        for base_offset, size in wanted:
            place = places.place_of(number, base_offset, place + 1)
            if place < 0 or places.sizes[place] != size:
                raise DamagedBatch(self.path, number, base_offset, "it is not there")
            chunks += places.chunks(place)
        ranges = _joined(chunks)
        try:
            parts = self._read_cached(ranges, places, place) if not wait else None
            parts = parts or [memoryview(self.read_at(at, size)) for at, size, _ in ranges]
        except OSError as error:
            raise DamagedBatch(self.path, number, wanted[0][0], str(error)) from error
        pieces = _cut(chunks, ranges, parts)
        verify(self.path, number, wanted, pieces, CHUNK_BYTES)
        return pieces

    def _read_cached(
        self, ranges: Sequence[_Stretch], places: BatchPlaces, last: int
    ) -> list[memoryview] | None:
        """Parts of the file from the page cache; None where the system cannot tell.

        Raises:
            NotCached: not all of it is there; ``last`` is the last batch that is asked for.
        """
        if not SegmentFile._tells_what_is_cached:
            return None
        parts = []
        with self._used() as descriptor:
            for position, size, _ in ranges:
                part = memoryview(bytearray(size))
                try:
                    found = os.preadv(descriptor, [part], position, os.RWF_NOWAIT)
                except BlockingIOError:
                    found = 0
                except OSError as error:
                    if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                        raise
                    SegmentFile._tells_what_is_cached = False
                    return None
                if found < size:
                    raise NotCached(partial(self._load, ranges, places, last))
                parts.append(part)
        return parts

    def _load(self, ranges: Sequence[_Stretch], places: BatchPlaces, last: int) -> None:
        """Bring parts of the file into the page cache, and have the next batches follow.

        What cannot be read shows when it is read again.
        """
        with suppress(OSError):
            for position, size, _ in [*ranges, *_joined(places.chunks_after(last, _AHEAD_BYTES))]:
                self.read_soon(position, size)
            for position, size, _ in ranges:
                self.read_at(position, size)

    def _walk(
        self, segment_id: int, breathe: Callable[[], None] = _go_on
    ) -> tuple[list[Stored], list[StoredEpoch]]:
        """All keys: the batches and the epochs, once it is sure that it is this segment."""
        root = self.root()
        batches: list[Stored] = []
        epochs: list[StoredEpoch] = []
        is_identified = False
        try:
            for number, base_offset, values in _grouped(
                walk(self._read_at_once, root, HEADER_BYTES)
            ):
                if number <= LAST_NUMBER:
                    if not len(batches) % _BATCHES_PER_BREATH:
                        breathe()
                    batches.append((number, base_offset, values))
                elif number == EPOCHS:
                    (start,) = OFFSET.unpack(self.value(values[0]))
                    epochs.append(StoredEpoch(base_offset >> 32, base_offset & 0xFFFF_FFFF, start))
                elif values[0].key == IDENTITY_KEY:
                    self._check_identity(self.value(values[0]), segment_id)
                    is_identified = True
        except (PagesDamaged, struct.error) as error:
            raise DamagedSegment(self.path, str(error)) from error
        if not is_identified:
            raise DamagedSegment(self.path, "it does not say which segment it is")
        return batches, epochs

    def _stored_batch(self, number: int, base_offset: int, values: Sequence[Value]) -> StoredBatch:
        """What a batch's header says, once it agrees with its key and its pages.

        Raises:
            DamagedBatch: it does not.
        """
        size = sum([value.size for value in values])
        start = values[0].start
        problem = header_problem(start, base_offset, size)
        if problem or not all([value.start for value in values]):
            problem = problem or "a part of it is not there"
            raise DamagedBatch(self.path, number, base_offset, problem)
        chunks = [value.position for value in values]
        header = read_header(start)
        marker = decode_marker(header, self.value(values[0])) if header.is_control else None
        return StoredBatch(number, base_offset, size, header, chunks, marker)

    def _check_identity(self, stored: bytes, segment_id: int) -> None:
        version, stored_id = IDENTITY_VALUE.unpack(stored)
        if (version, stored_id) != (FORMAT, segment_id):
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"log segment {self.path}: format {version}, segment {stored_id}; expected "
                f"{FORMAT}, {segment_id}: put the right file there, or start the release that "
                "wrote it",
            )

    @contextmanager
    def _used(self) -> Iterator[int]:
        with self._lock:
            if self._is_closed:
                raise OSError(f"log segment {self.path} is closed")
            self._users += 1
        try:
            yield self._descriptor
        finally:
            self._release()

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            os.close(self._descriptor)


def _grouped(values: Iterator[Value]) -> Iterator[Stored]:
    """(partition number, base offset, its pieces) of each batch, by key."""
    of = (-1, -1)
    pieces: list[Value] = []
    for value in values:
        number, base_offset, _ = KEY.unpack(value.key)
        if of != (number, base_offset):
            if pieces:
                yield (*of, pieces)
            of, pieces = (number, base_offset), []
        pieces.append(value)
    if pieces:
        yield (*of, pieces)


def _joined(chunks: Sequence[tuple[int, int]]) -> list[_Stretch]:
    """The stretches of the file to read, neighbours together, in whichever order they lie."""
    joined: list[_Stretch] = []
    for position, size in chunks:
        end = position + size
        if joined:
            start, length, count = joined[-1]
            if position <= start + length + _BRIDGED_BYTES and end >= start - _BRIDGED_BYTES:
                low = min(start, position)
                joined[-1] = _Stretch(low, max(start + length, end) - low, count + 1)
                continue
        joined.append(_Stretch(position, size, 1))
    return joined


def _cut(
    chunks: Sequence[tuple[int, int]],
    stretches: Sequence[_Stretch],
    parts: Sequence[memoryview],
) -> list[memoryview]:
    """The chunks, out of the stretches that were read."""
    pieces: list[memoryview] = []
    remaining = iter(chunks)
    for (start, _, count), part in zip(stretches, parts, strict=True):
        for position, size in islice(remaining, count):
            pieces.append(part[position - start : position - start + size])
    return pieces
