"""A segment file that is read by ``pread`` without mapping it: scans its contents, and reads its
batches.

Damage appears as an error and never as a signal, reads of uncached pages run at the disk's speed,
and nothing that was read stays in memory. Several threads use the file. ``close`` does not wait for
them: the descriptor is closed after the last read that uses it.
"""

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import HEADER_BYTES, check_of, read_header
from quorate.broker.log.segments.batch_places import CHUNK_BYTES, BatchPlaces
from quorate.broker.log.segments.batch_verification import header_problem, verify
from quorate.broker.log.segments.bulk_scan import Unusual, scan_in_bulk
from quorate.broker.log.segments.damage import DamagedBatch, DamagedSegment
from quorate.broker.log.segments.read_plan import FileRange, cut, joined
from quorate.broker.log.segments.segment_contents import (
    FooterPlace,
    SegmentContents,
    StoredBatch,
    StoredEpoch,
)
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    EPOCHS,
    FORMAT,
    FORMAT_WITHOUT_CHECKS,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    LAST_NUMBER,
    epoch_of,
    epoch_start,
)
from quorate.common.files.lmdb_check import check_free_pages
from quorate.common.files.lmdb_pages import (
    DatabaseRoot,
    OnProblem,
    PageMap,
    PagesDamaged,
    raise_problem,
    read_roots,
)
from quorate.common.files.lmdb_tree import StoredValue, TreeWalk
from quorate_proto.v1 import errors_pb2

_BATCHES_PER_BREATH: Final = 200
_ADVISED_BYTES: Final = 512 << 10
"""The size of one read-ahead request. Of a larger request Linux reads only the beginning."""
_AHEAD_BYTES: Final = 8 << 20
"""The number of bytes that are read ahead for a reader of old data."""

JudgedBatch = tuple[int, int, list[StoredValue], str]
"""A batch as in ``Stored``, and what is wrong with its check."""
Stored = tuple[int, int, list[StoredValue]]
"""Partition number, base offset and pieces of a batch."""
OnDamaged = Callable[[DamagedBatch], None]


def _go_on() -> None:
    """Do nothing. This is used where no other thread needs the processor."""


class NotCached(Exception):
    """Raised when the requested batches are not in the page cache. ``load`` reads them, on another
    thread."""

    def __init__(self, load: Callable[[], None]) -> None:
        super().__init__("not in the page cache")
        self.load = load


class SegmentFile:
    """A segment file, open for reading."""

    _tells_what_is_cached = hasattr(os, "RWF_NOWAIT")
    """Whether kernel and file system can tell that data is not in the page cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._users = 1
        """The number of users: the one that opened the file, and every read in progress."""
        self._is_closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Refuse further reads. Reads in progress continue."""
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
        """Return ``size`` bytes. Fewer are returned only at the end of the file."""
        with self._used() as descriptor:
            data = os.pread(descriptor, size, position)
            while len(data) < size:
                more = os.pread(descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        return data

    def _read_at_once(self, position: int, size: int) -> bytes:
        """Read as ``read_at`` does. The caller makes sure that the file is not closed meanwhile."""
        return os.pread(self._descriptor, size, position)

    def sync(self) -> None:
        """Make the whole file durable, including what others wrote."""
        with self._used() as descriptor:
            os.fsync(descriptor)

    def read_soon(self, position: int, size: int) -> None:
        """Ask the system to read this part of the file ahead."""
        with self._used() as descriptor:
            for done in range(0, size, _ADVISED_BYTES):
                piece = min(_ADVISED_BYTES, size - done)
                os.posix_fadvise(descriptor, position + done, piece, os.POSIX_FADV_WILLNEED)

    def root(self) -> DatabaseRoot:
        """Return LMDB's newest commit.

        Raises:
            DamagedSegment: The file has none.
        """
        try:
            return read_roots(self.read_at, self.size_bytes)[1]
        except PagesDamaged as error:
            raise DamagedSegment(self.path, str(error)) from error

    def footer(self, place: FooterPlace, segment_id: int) -> SegmentContents:
        """Return the contents in the footer.

        Raises:
            FooterDamaged: The footer is missing, or not what was written.
        """
        return SegmentContents.unpack(
            self.read_at(place.position, place.size), segment_id, place.crc
        )

    def scan(
        self,
        segment_id: int,
        on_damaged: OnDamaged,
        breathe: Callable[[], None] = _go_on,
        on_problem: OnProblem = raise_problem,
    ) -> SegmentContents:
        """Return the contents by reading LMDB's pages and each batch's header. Damaged batches are
        left out.

        ``breathe`` is called after about every millisecond of work. ``on_problem`` is called with
        damage to the pages behind which there may still be batches.

        Raises:
            DamagedSegment: The pages are damaged, or the file is no segment.
            KafkaError: KAFKA_STORAGE_ERROR if the file is of another format, or another segment.
        """
        contents = SegmentContents(segment_id, self.modified_at_ms)
        with suppress(Unusual):
            scan_in_bulk(self._read_at_once, self.root(), contents, breathe)
            return contents
        del contents
        return self._scan_one_by_one(segment_id, on_damaged, breathe, on_problem)

    def _scan_one_by_one(
        self,
        segment_id: int,
        on_damaged: OnDamaged,
        breathe: Callable[[], None],
        on_problem: OnProblem,
    ) -> SegmentContents:
        stored, epochs, version = self._walk(segment_id, breathe, on_problem)
        batches: list[StoredBatch] = []
        for number, base_offset, values in stored:
            if not len(batches) % _BATCHES_PER_BREATH:
                breathe()
            try:
                self._verify_check(number, base_offset, values, version)
                batches.append(self._stored_batch(number, base_offset, values))
            except DamagedBatch as damaged:
                on_damaged(damaged)
        contents = SegmentContents.of(segment_id, self.modified_at_ms, batches, epochs)
        contents.has_checks = version == FORMAT
        return contents

    def stored(self, segment_id: int, on_problem: OnProblem) -> Iterator[JudgedBatch]:
        """Yield partition number, base offset and pieces of every batch, by LMDB's pages and the
        checks alone, with the problem of the check, or an empty string.

        Raises:
            DamagedSegment, KafkaError: what ``scan`` raises.
        """
        stored, _, version = self._walk(segment_id, _go_on, on_problem)
        for number, base_offset, values in stored:
            try:
                self._verify_check(number, base_offset, values, version)
            except DamagedBatch as damaged:
                yield number, base_offset, values, damaged.problem
            else:
                yield number, base_offset, values, ""

    def value(self, value: StoredValue) -> bytes:
        """Return the bytes of a value."""
        return self.read_at(value.position, value.size)

    def read_batches(
        self,
        places: BatchPlaces,
        number: int,
        wanted: Sequence[tuple[int, int]],
        *,
        wait: bool = True,
    ) -> list[memoryview]:
        """Return the batches ``wanted``, given as (base offset, size), as verified chunks.

        Raises:
            DamagedBatch: A batch is missing, or not what was written.
            NotCached: The disk would have to be waited for, and ``wait`` is False.
        """
        found = places.find(number, wanted)
        if len(found) < len(wanted):
            raise DamagedBatch(self.path, number, wanted[len(found)][0], "it is not there")
        chunks = places.chunks_of(found)
        epochs = [places.leader_epochs[place] for place in found]
        ranges = joined(chunks)
        try:
            parts = self._read_cached(ranges, places, found[-1]) if not wait else None
            parts = parts or [memoryview(self.read_at(at, size)) for at, size, _ in ranges]
        except OSError as error:
            raise DamagedBatch(self.path, number, wanted[0][0], str(error)) from error
        pieces = cut(chunks, ranges, parts)
        verify(self.path, number, wanted, pieces, CHUNK_BYTES, epochs)
        return pieces

    def _read_cached(
        self, ranges: Sequence[FileRange], places: BatchPlaces, last: int
    ) -> list[memoryview] | None:
        """Return parts of the file from the page cache, or None if the system cannot tell what it
        holds.

        Raises:
            NotCached: Some of it is not in the page cache. ``last`` is the place of the last
                requested batch.
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

    def _load(self, ranges: Sequence[FileRange], places: BatchPlaces, last: int) -> None:
        """Read parts of the file into the page cache, and start to read the next batches ahead.

        Errors are ignored here, because the next read of the data reports them.
        """
        with suppress(OSError):
            for position, size, _ in [*ranges, *joined(places.chunks_after(last, _AHEAD_BYTES))]:
                self.read_soon(position, size)
            for position, size, _ in ranges:
                self.read_at(position, size)

    def _walk(
        self, segment_id: int, breathe: Callable[[], None], on_problem: OnProblem
    ) -> tuple[list[Stored], list[StoredEpoch], int]:
        """Read all keys: the batches, the epochs and the format. First check that the file is this
        segment."""
        root = self.root()
        batches: list[Stored] = []
        epochs: list[StoredEpoch] = []
        version = 0
        try:
            pages = PageMap(root)
            walk = TreeWalk(
                self._read_at_once,
                root,
                root.main,
                pages,
                start_bytes=HEADER_BYTES,
                on_problem=on_problem,
            )
            for number, base_offset, values in _grouped(walk.values()):
                if number <= LAST_NUMBER:
                    if not len(batches) % _BATCHES_PER_BREATH:
                        breathe()
                    batches.append((number, base_offset, values))
                elif number == EPOCHS:
                    epochs += self._epoch(base_offset, values[0], on_problem)
                elif values[0].key == IDENTITY_KEY:
                    version = self._check_identity(self.value(values[0]), segment_id)
            check_free_pages(self._read_at_once, root, pages, on_problem)
        except (PagesDamaged, struct.error) as error:
            raise DamagedSegment(self.path, str(error)) from error
        if not version:
            raise DamagedSegment(self.path, "it does not say which segment it is")
        return batches, epochs, version

    def _epoch(self, packed: int, value: StoredValue, on_problem: OnProblem) -> list[StoredEpoch]:
        try:
            start_offset = epoch_start(value.key, self.value(value))
        except ValueError as error:
            on_problem(str(error))
            return []
        return [StoredEpoch(*epoch_of(packed), start_offset)]

    def _verify_check(
        self, number: int, base_offset: int, values: list[StoredValue], version: int
    ) -> None:
        """Verify the check of a batch, and take it from the pieces of the batch.

        Raises:
            DamagedBatch: The check is missing, or is one of another header.
        """
        has_check = values[-1].key == KEY.pack(number, base_offset, CHECK)
        check = values.pop() if has_check and len(values) > 1 else None
        if version == FORMAT_WITHOUT_CHECKS and not has_check:
            return
        if check is None or check.start != check_of(check.key, values[0].start):
            problem = "its check is missing"
            if check is not None:
                problem = "its header is not what was written"
            raise DamagedBatch(self.path, number, base_offset, problem)

    def _stored_batch(
        self, number: int, base_offset: int, values: Sequence[StoredValue]
    ) -> StoredBatch:
        """Return the fields of a batch's header, after checking them against its key and its pages.

        Raises:
            DamagedBatch: They do not agree.
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

    def _check_identity(self, stored: bytes, segment_id: int) -> int:
        """Return the format of the segment."""
        version, stored_id = IDENTITY_VALUE.unpack(stored)
        if version not in (FORMAT_WITHOUT_CHECKS, FORMAT) or stored_id != segment_id:
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"log segment {self.path}: format {version}, segment {stored_id}; expected "
                f"{FORMAT}, {segment_id}: put the right file there, or start the release that "
                "wrote it",
            )
        return int(version)

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


def _grouped(values: Iterator[StoredValue]) -> Iterator[Stored]:
    """Yield (partition number, base offset, pieces) of each batch, by key."""
    of = (-1, -1)
    pieces: list[StoredValue] = []
    for value in values:
        number, base_offset, _ = KEY.unpack(value.key)
        if of != (number, base_offset):
            if pieces:
                yield (*of, pieces)
            of, pieces = (number, base_offset), []
        pieces.append(value)
    if pieces:
        yield (*of, pieces)
