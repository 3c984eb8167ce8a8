"""``store.mdb``: which partitions a store has, and what about them no segment can say.

Small and always synced, whatever ``log.flush`` says. Five sub-databases:

    partitions  local number u32 → PartitionRow
    voids       local number u32 | through segment u64 → offset u64: batches of the partition that
                lie in segments up to that one and begin at or beyond the offset do not exist. This
                is how a truncation reaches sealed segments, which are never written again.
    producers   local number u32 → what is known of idempotent producers from batches before the
                start of the log; the rest is in the batches
    segments    segment id u64 → 1 if it is durable, 0 if a power loss may have damaged it | of a
                sealed one where its footer is: position u64, size, crc u32
    store       format, next local number, last segment id, high watermarks, how far logs are
                clean, how the last run ended, whether batches may be lost

Safe to write from several threads: LMDB lets one transaction in at a time.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import lmdb
import msgspec

from broker.errors import KafkaError
from broker.log.segment_contents import FooterPlace
from broker.log.segment_files import UNFINISHED
from broker.log.system_errors import refuse_without_access
from broker.log.work import PartitionRow, Truncation
from quorate_proto.v1 import errors_pb2
from quorum.data_folder import sync_folder
from quorum.lmdb_lock_file import allocate_lock_file, lock_file

FILE_NAME: Final = "store.mdb"
FORMAT: Final = 1
_MAP_BYTES: Final = 4 << 30
"""Address space, not memory: far beyond what 200,000 partitions need."""

_NUMBER: Final = struct.Struct(">I")
_VOID_KEY: Final = struct.Struct(">IQ")
_U64: Final = struct.Struct(">Q")
_FOOTER: Final = struct.Struct(">QII")
_FORMAT_KEY: Final = b"format"
_NEXT_NUMBER_KEY: Final = b"next-number"
_LAST_SEGMENT_KEY: Final = b"last-segment"
_HIGH_WATERMARKS_KEY: Final = b"high-watermarks"
_CLEANED_OFFSETS_KEY: Final = b"cleaned-offsets"
_RUN_KEY: Final = b"run"
_LOSS_KEY: Final = b"loss"


class Run(msgspec.Struct, frozen=True, array_like=True):
    """The last use of the store: on which boot of the machine, and whether it was closed."""

    boot_id: str
    closed: bool


class Void(NamedTuple):
    """Batches in segments up to ``through_segment_id`` from ``offset`` on do not exist."""

    through_segment_id: int
    offset: int


class StoreTable:
    """The table of one log folder."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        # What a killed process left in memory alone must not be acted on before it is on disk.
        environment.sync(True)
        with environment.begin(write=True) as transaction:
            self._partitions = environment.open_db(b"partitions", transaction)
            self._voids = environment.open_db(b"voids", transaction)
            self._producers = environment.open_db(b"producers", transaction)
            self._segments = environment.open_db(b"segments", transaction)
            self._store = environment.open_db(b"store", transaction)

    @classmethod
    def open(cls, directory: Path) -> "StoreTable":
        """The table in ``directory``, created if there is none.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; damaged, or of another format.
            OSError: the folder cannot be written.
        """
        path = directory / FILE_NAME
        if not path.exists():
            cls._create(path)
        return cls._open(path)

    @classmethod
    def _create(cls, path: Path) -> None:
        """Whole or not at all: LMDB does not open a file whose first pages were lost."""
        unfinished = path.with_name(path.name + UNFINISHED)
        for leftover in (unfinished, lock_file(unfinished)):
            leftover.unlink(missing_ok=True)
        cls._open(unfinished).close()
        unfinished.rename(path)
        lock_file(unfinished).unlink(missing_ok=True)
        sync_folder(path.parent)

    @classmethod
    def _open(cls, path: Path) -> "StoreTable":
        allocate_lock_file(path)
        try:
            table = cls(
                lmdb.open(str(path), subdir=False, map_size=_MAP_BYTES, max_dbs=5, readahead=False)
            )
        except lmdb.Error as error:
            refuse_without_access(path, error)
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"partition table {path}: {error}; restore the file or empty the log directory",
            ) from error
        table._claim_format(path)
        return table

    def _claim_format(self, path: Path) -> None:
        with self._environment.begin(self._store, write=True) as transaction:
            found = transaction.get(_FORMAT_KEY)
            if found is None:
                transaction.put(_FORMAT_KEY, _NUMBER.pack(FORMAT))
                return
        (version,) = _NUMBER.unpack(found)
        if version != FORMAT:
            self.close()
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"partition table {path} has format {version}, this release reads {FORMAT}; "
                "start the release that wrote it",
            )

    def partitions(self) -> list[PartitionRow]:
        """Every partition, by number."""
        decoder = msgspec.msgpack.Decoder(PartitionRow)
        with self._environment.begin(self._partitions) as transaction:
            return [decoder.decode(value) for _, value in transaction.cursor()]

    def next_number(self) -> int:
        """The first local number never given out."""
        with self._environment.begin(self._store) as transaction:
            return int(_NUMBER.unpack(transaction.get(_NEXT_NUMBER_KEY, _NUMBER.pack(0)))[0])

    def add_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Enter partitions; their numbers are never given out again."""
        beyond = max(row.number for row in rows) + 1
        encode = msgspec.msgpack.Encoder().encode
        items = [(_NUMBER.pack(row.number), encode(row)) for row in rows]
        with self._environment.begin(write=True) as transaction:
            with transaction.cursor(self._partitions) as cursor:
                cursor.putmulti(items)
            transaction.put(_NEXT_NUMBER_KEY, _NUMBER.pack(beyond), db=self._store)

    def remove_partitions(self, numbers: Iterable[int]) -> None:
        """Take partitions out, and what is known about them."""
        with self._environment.begin(write=True) as transaction:
            has_voids = bool(transaction.stat(self._voids)["entries"])
            for number in numbers:
                transaction.delete(_NUMBER.pack(number), db=self._partitions)
                transaction.delete(_NUMBER.pack(number), db=self._producers)
                if not has_voids:
                    continue
                for void in self._voids_of(transaction, number):
                    key = _VOID_KEY.pack(number, void.through_segment_id)
                    transaction.delete(key, db=self._voids)

    def voids(self) -> dict[int, list[Void]]:
        """What truncations voided in sealed segments, by partition number."""
        found: dict[int, list[Void]] = {}
        with self._environment.begin(self._voids) as transaction:
            for key, value in transaction.cursor():
                number, through = _VOID_KEY.unpack(key)
                found.setdefault(number, []).append(Void(through, _U64.unpack(value)[0]))
        return found

    def record_truncations(self, truncations: Sequence[Truncation], sealed_segment_id: int) -> None:
        """Void what ``truncations`` reach in segments up to ``sealed_segment_id``, start logs anew.

        Nothing is written for one that reaches no sealed segment and keeps its log's start.
        """
        deep = [t for t in truncations if t.lowest_segment_id <= sealed_segment_id]
        moved = [t for t in truncations if t.log_start_offset is not None]
        if not deep and not moved:
            return
        with self._environment.begin(write=True) as transaction:
            for truncation in deep:
                self._add_void(transaction, truncation.number, sealed_segment_id, truncation.offset)
            for truncation in moved:
                key = _NUMBER.pack(truncation.number)
                value = transaction.get(key, db=self._partitions)
                if value is not None and truncation.log_start_offset is not None:
                    row = msgspec.structs.replace(
                        msgspec.msgpack.decode(value, type=PartitionRow),
                        log_start_offset=truncation.log_start_offset,
                    )
                    transaction.put(key, msgspec.msgpack.encode(row), db=self._partitions)
                    if truncation.producers:
                        transaction.put(key, truncation.producers, db=self._producers)
                    else:
                        transaction.delete(key, db=self._producers)

    def producers(self) -> dict[int, bytes]:
        """What is known of producers from batches before the start of a log, by its number."""
        with self._environment.begin(self._producers) as transaction:
            return {_NUMBER.unpack(key)[0]: value for key, value in transaction.cursor()}

    def _add_void(
        self, transaction: "lmdb.Transaction[bytes]", number: int, through: int, offset: int
    ) -> None:
        """Add a rule; older ones that it covers go."""
        for void in self._voids_of(transaction, number):
            if void.through_segment_id <= through and void.offset >= offset:
                transaction.delete(_VOID_KEY.pack(number, void.through_segment_id), db=self._voids)
            elif void.through_segment_id == through:
                offset = min(offset, void.offset)
        transaction.put(_VOID_KEY.pack(number, through), _U64.pack(offset), db=self._voids)

    def _voids_of(self, transaction: "lmdb.Transaction[bytes]", number: int) -> list[Void]:
        found = []
        with transaction.cursor(self._voids) as cursor:
            more = cursor.set_range(_VOID_KEY.pack(number, 0))
            while more:
                owner, through = _VOID_KEY.unpack(cursor.key())
                if owner != number:
                    break
                found.append(Void(through, _U64.unpack(cursor.value())[0]))
                more = cursor.next()
        return found

    def drop_voids_before(self, oldest_segment_id: int) -> None:
        """Forget rules about segments that are gone, all older than ``oldest_segment_id``."""
        with self._environment.begin(self._voids, write=True) as transaction:
            for key in list(transaction.cursor().iternext(values=False)):
                if _VOID_KEY.unpack(key)[1] < oldest_segment_id:
                    transaction.delete(key)

    def segments(self) -> dict[int, bool]:
        """Ids of the segments there are, and whether each is durable."""
        with self._environment.begin(self._segments) as transaction:
            return {_U64.unpack(key)[0]: value[:1] == b"\1" for key, value in transaction.cursor()}

    def footers(self) -> dict[int, FooterPlace]:
        """Where the footers of the sealed segments are, by id."""
        with self._environment.begin(self._segments) as transaction:
            return {
                _U64.unpack(key)[0]: FooterPlace(*_FOOTER.unpack_from(value, 1))
                for key, value in transaction.cursor()
                if len(value) > 1
            }

    def record_footer(self, segment_id: int, place: FooterPlace) -> None:
        """The segment is durable, its footer included; nothing if it is known no more."""
        with self._environment.begin(self._segments, write=True) as transaction:
            key = _U64.pack(segment_id)
            if transaction.get(key) is not None:
                transaction.put(key, b"\1" + _FOOTER.pack(*place))

    def last_segment_id(self) -> int:
        """The newest segment there ever was; 0: none."""
        with self._environment.begin() as transaction:
            return self._last_segment_id(transaction)

    def record_segments(self, durable_by_id: Mapping[int, bool]) -> None:
        """Add segments, or change what is known of them. Ids are never given out again.

        From several threads: the newest id is read where it is written, or one of two could put
        an older one back.
        """
        with self._environment.begin(self._segments, write=True) as transaction:
            last_id = max([self._last_segment_id(transaction), *durable_by_id])
            for segment_id, durable in durable_by_id.items():
                key = _U64.pack(segment_id)
                footer = transaction.get(key, b"")[1:]
                transaction.put(key, (b"\1" if durable else b"\0") + footer)
            transaction.put(_LAST_SEGMENT_KEY, _U64.pack(last_id), db=self._store)

    def _last_segment_id(self, transaction: lmdb.Transaction) -> int:
        stored = transaction.get(_LAST_SEGMENT_KEY, _U64.pack(0), db=self._store)
        return int(_U64.unpack(stored)[0])

    def forget_segments(self, segment_ids: Iterable[int]) -> None:
        with self._environment.begin(self._segments, write=True) as transaction:
            for segment_id in segment_ids:
                transaction.delete(_U64.pack(segment_id))

    def high_watermarks(self) -> dict[int, int]:
        """Checkpointed high watermarks by partition number; numbers may be of deleted ones."""
        return self._checkpoint(_HIGH_WATERMARKS_KEY)

    def write_high_watermarks(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint."""
        self._write_checkpoint(_HIGH_WATERMARKS_KEY, offsets)

    def cleaned_offsets(self) -> dict[int, int]:
        """How far logs are clean (compacted), by partition number; some may be of deleted ones."""
        return self._checkpoint(_CLEANED_OFFSETS_KEY)

    def write_cleaned_offsets(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint."""
        self._write_checkpoint(_CLEANED_OFFSETS_KEY, offsets)

    def _checkpoint(self, key: bytes) -> dict[int, int]:
        with self._environment.begin(self._store) as transaction:
            packed = transaction.get(key, b"")
        return dict(struct.iter_unpack(">IQ", packed))

    def _write_checkpoint(self, key: bytes, offsets: Mapping[int, int]) -> None:
        pack = _VOID_KEY.pack
        packed = b"".join([pack(number, offset) for number, offset in offsets.items()])
        with self._environment.begin(self._store, write=True) as transaction:
            transaction.put(key, packed)

    def last_run(self) -> Run | None:
        """How the store was last used; None: never."""
        with self._environment.begin(self._store) as transaction:
            value = transaction.get(_RUN_KEY)
        return None if value is None else msgspec.msgpack.decode(value, type=Run)

    def record_run(self, run: Run) -> None:
        with self._environment.begin(self._store, write=True) as transaction:
            transaction.put(_RUN_KEY, msgspec.msgpack.encode(run))

    def loss_is_unhandled(self) -> bool:
        """Whether batches may have been lost and nobody has said that this was dealt with."""
        with self._environment.begin(self._store) as transaction:
            return transaction.get(_LOSS_KEY) is not None

    def record_loss(self, *, unhandled: bool) -> None:
        """Remember that batches may be lost, or that this has been dealt with (rule 8)."""
        with self._environment.begin(self._store, write=True) as transaction:
            if unhandled:
                transaction.put(_LOSS_KEY, b"\1")
            else:
                transaction.delete(_LOSS_KEY)

    def close(self) -> None:
        self._environment.close()
