"""One segment: an LMDB environment with the batches that all partitions got while it was active.

Keys are 14 bytes, big-endian: local partition number u32 | base offset u64 | chunk u16. A batch is
one value, or several chunks of ``CHUNK_BYTES`` (so that LMDB finds room for them). The last two
partition numbers are the segment's own:

    EPOCHS   | partition number << 32 | leader epoch | 0    start offset of the epoch, u64
    IDENTITY | 0 | 0                                        format u32, segment id u64

A segment records, with the first batch that each partition has of an epoch in it, where that epoch
began: so the epoch history survives as long as the batches do, in the same transaction (KIP-101).

Only the newest segment is written. It is created under a temporary name, synced and renamed, and
its folder synced, before it takes a batch: so a file that has its name is whole, and the first
acknowledgement from it cannot vanish with its directory entry.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from broker.errors import KafkaError
from broker.log.options import LARGEST_BATCH_BYTES, Flush, Records
from broker.log.record_batch import BatchHeader, read_header
from broker.log.segment_files import (
    UNFINISHED,
    lock_file,
    remove_segment_files,
    segment_id_of,
    segment_name,
)
from broker.log.work import PendingBatch
from quorate_proto.v1 import errors_pb2
from quorum.data_folder import sync_folder

FORMAT: Final = 1
CHUNK_BYTES: Final = (256 << 10) - 16
"""n * 4096 - 16: LMDB puts 16 bytes before a value that fills pages of its own."""

_KEY: Final = struct.Struct(">IQH")
_NUMBER: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">Q")
_IDENTITY_VALUE: Final = struct.Struct(">IQ")
_EPOCHS: Final = 0xFFFF_FFFE
_IDENTITY: Final = 0xFFFF_FFFF
LAST_NUMBER: Final = _EPOCHS - 1
"""The largest local partition number."""
_IDENTITY_KEY: Final = _KEY.pack(_IDENTITY, 0, 0)

_ROOM_BYTES: Final = 4 * LARGEST_BATCH_BYTES
"""Map beyond the size at which a segment is sealed: a full map must never be met."""


class StoredBatch(NamedTuple):
    """A batch found by a scan."""

    number: int
    base_offset: int
    size: int
    header: BatchHeader


class StoredEpoch(NamedTuple):
    """An epoch's beginning found by a scan."""

    number: int
    leader_epoch: int
    start_offset: int


class Segment:
    """One environment. ``append`` and ``delete_from`` on the writer's thread, ``read`` on any."""

    def __init__(self, path: Path, segment_id: int, environment: lmdb.Environment) -> None:
        self.path = path
        self.id = segment_id
        self.live_batches = 0
        """Batches that some log still has; counted on the event loop."""
        self._environment = environment
        self._page_bytes = environment.stat()["psize"]
        self._recorded_epochs: dict[int, int] = {}

    @classmethod
    def create(
        cls, directory: Path, segment_id: int, flush: Flush, segment_bytes: int
    ) -> "Segment":
        """A new, empty segment; durable by name on return."""
        path = directory / segment_name(segment_id)
        unfinished = path.with_name(path.name + UNFINISHED)
        for leftover in (unfinished, lock_file(unfinished)):
            leftover.unlink(missing_ok=True)
        environment = _open_environment(unfinished, "sync", segment_bytes)
        with environment.begin(write=True) as transaction:
            transaction.put(_IDENTITY_KEY, _IDENTITY_VALUE.pack(FORMAT, segment_id))
        environment.close()
        unfinished.rename(path)
        lock_file(unfinished).unlink(missing_ok=True)
        sync_folder(directory)
        return cls.open(path, flush, segment_bytes)

    @classmethod
    def open(cls, path: Path, flush: Flush, segment_bytes: int) -> "Segment":
        """An existing segment.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; it is damaged, of another format, or not a segment.
        """
        segment_id = segment_id_of(path)
        try:
            environment = _open_environment(path, flush, segment_bytes)
            with environment.begin() as transaction:
                identity = transaction.get(_IDENTITY_KEY)
        except lmdb.Error as error:
            raise _damaged(path, str(error)) from error
        if identity is None or segment_id is None:
            environment.close()
            raise _damaged(path, "it does not say which segment it is")
        version, stored_id = _IDENTITY_VALUE.unpack(identity)
        if version != FORMAT or stored_id != segment_id:
            environment.close()
            raise _damaged(
                path, f"format {version}, segment {stored_id}; expected {FORMAT}, {segment_id}"
            )
        return cls(path, segment_id, environment)

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that LMDB has ever used."""
        return (self._environment.info()["last_pgno"] + 1) * self._page_bytes

    @property
    def written_at_ms(self) -> int:
        """When it was last written, by the wall clock: no batch in it is newer."""
        return self.path.stat().st_mtime_ns // 1_000_000

    @property
    def is_empty(self) -> bool:
        """Whether it has never held a batch, or holds none any more."""
        return self._environment.stat()["entries"] == 1

    def append(self, batches: Sequence[PendingBatch]) -> None:
        """Write ``batches`` in one transaction; durable on return if opened with ``sync``."""
        items: list[tuple[bytes, Records]] = []
        for batch in batches:
            number, base_offset = batch.number, batch.base_offset
            epoch = batch.leader_epoch
            if epoch >= 0 and self._recorded_epochs.get(number) != epoch:
                self._recorded_epochs[number] = epoch
                items.append((_epoch_key(number, epoch), _OFFSET.pack(batch.epoch_start_offset)))
            if batch.size <= CHUNK_BYTES:
                items.append((_KEY.pack(number, base_offset, 0), batch.records))
                continue
            view = memoryview(batch.records)
            items.extend(
                (_KEY.pack(number, base_offset, chunk), view[start : start + CHUNK_BYTES])
                for chunk, start in enumerate(range(0, batch.size, CHUNK_BYTES))
            )
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(items)

    def delete_from(self, truncations: Sequence[tuple[int, int]]) -> None:
        """Delete, for each (partition number, offset), batches and epochs from there on."""
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            for number, offset in truncations:
                self._recorded_epochs.pop(number, None)
                _delete_range(cursor, _KEY.pack(number, offset, 0), _NUMBER.pack(number))
                for epoch in list(_epochs_of(cursor, number)):
                    if epoch.start_offset >= offset:
                        transaction.delete(_epoch_key(number, epoch.leader_epoch))

    def read(self, number: int, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """The batches ``wanted``, (base offset, size) each, chunk by chunk, copied once.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; one is missing, or the file cannot be read.
        """
        chunks: list[bytes] = []
        try:
            with self._environment.begin() as transaction:
                for base_offset, size in wanted:
                    for chunk in range(-(-size // CHUNK_BYTES)):
                        value = transaction.get(_KEY.pack(number, base_offset, chunk))
                        if value is None:
                            raise _damaged(
                                self.path, f"partition number {number} lacks offset {base_offset}"
                            )
                        chunks.append(value)
        except lmdb.Error as error:
            raise _damaged(self.path, str(error)) from error
        return chunks

    def stored(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Every batch as it lies there: partition number, base offset, chunks. Checks nothing."""
        of: tuple[int, int] | None = None
        chunks: list[bytes] = []
        with self._environment.begin() as transaction:
            for key, value in transaction.cursor():
                number, base_offset, _ = _KEY.unpack(key)
                if number > LAST_NUMBER:
                    break
                if of is not None and of != (number, base_offset):
                    yield (*of, chunks)
                    chunks = []
                of = number, base_offset
                chunks.append(value)
        if of is not None:
            yield (*of, chunks)

    def scan(self) -> Iterator[StoredBatch]:
        """Every batch, by partition number and base offset. Reads the headers alone.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; a header contradicts its key.
        """
        found: StoredBatch | None = None
        with self._environment.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                number, base_offset, chunk = _KEY.unpack(key)
                if number > LAST_NUMBER:
                    break
                if chunk and found is not None:
                    found = found._replace(size=found.size + len(value))
                    continue
                if found is not None:
                    yield found
                header = read_header(value)
                if header.base_offset != base_offset:
                    raise _damaged(
                        self.path, f"key says offset {base_offset}, batch {header.base_offset}"
                    )
                found = StoredBatch(number, base_offset, len(value), header)
            if found is not None:
                yield found

    def scan_epochs(self) -> list[StoredEpoch]:
        """Every beginning of an epoch; called once before the first append after an open."""
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            epochs = list(_epochs_from(cursor, _KEY.pack(_EPOCHS, 0, 0)))
        for epoch in epochs:
            known = self._recorded_epochs.get(epoch.number, -1)
            self._recorded_epochs[epoch.number] = max(known, epoch.leader_epoch)
        return epochs

    def sync(self) -> None:
        """Make everything written so far durable, however it was opened."""
        self._environment.sync(True)

    def close(self) -> None:
        self._environment.close()

    def unlink(self) -> None:
        """Close it and remove its files."""
        self.close()
        remove_segment_files(self.path)


def _open_environment(path: Path, flush: Flush, segment_bytes: int) -> lmdb.Environment:
    existing_bytes = path.stat().st_size if path.exists() else 0
    return lmdb.open(
        str(path),
        subdir=False,
        map_size=max(2 * segment_bytes, existing_bytes) + _ROOM_BYTES,
        readahead=False,
        meminit=False,
        writemap=False,
        sync=flush == "sync",
        metasync=True,
        max_spare_txns=2,
    )


def _epoch_key(number: int, leader_epoch: int) -> bytes:
    return _KEY.pack(_EPOCHS, number << 32 | leader_epoch, 0)


def _delete_range(cursor: "lmdb.Cursor[bytes]", first: bytes, prefix: bytes) -> None:
    found = cursor.set_range(first)
    while found and cursor.key().startswith(prefix):
        found = cursor.delete() and bool(cursor.key())


def _epochs_of(cursor: "lmdb.Cursor[bytes]", number: int) -> Iterator[StoredEpoch]:
    for epoch in _epochs_from(cursor, _epoch_key(number, 0)):
        if epoch.number != number:
            return
        yield epoch


def _epochs_from(cursor: "lmdb.Cursor[bytes]", first: bytes) -> Iterator[StoredEpoch]:
    if not cursor.set_range(first):
        return
    for key, value in cursor.iternext():
        kind, packed, _ = _KEY.unpack(key)
        if kind != _EPOCHS:
            return
        (start_offset,) = _OFFSET.unpack(value)
        yield StoredEpoch(packed >> 32, packed & 0xFFFF_FFFF, start_offset)


def _damaged(path: Path, problem: str) -> KafkaError:
    return KafkaError(
        errors_pb2.KAFKA_STORAGE_ERROR,
        f"log segment {path}: {problem}; restore the file, or empty the log directory "
        "so that this broker fetches its logs from their leaders",
    )
