"""``store.mdb``: the partitions of a store, and what is known about them that no segment can hold.

The table is small and always synced, whatever ``log.flush`` says. It has five sub-databases:

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

LMDB lets one write transaction in at a time, so the table may be written from several threads.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import lmdb
import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.partition_row import PartitionRow, Truncation
from quorate.broker.log.segments.segment_contents import FooterPlace
from quorate.broker.log.segments.segment_names import UNFINISHED
from quorate.broker.log.segments.system_errors import refuse_without_access
from quorate.common.files.durable_files import sync_folder
from quorate.common.files.lmdb_lock_file import allocate_lock_file, lock_file
from quorate_proto.v1 import errors_pb2

FILE_NAME: Final = "store.mdb"
FORMAT: Final = 1
_MAP_BYTES: Final = 4 << 30
"""The address space of the LMDB map, which is not memory. It is far more than 200,000 partitions
need."""

_NUMBER: Final = struct.Struct(">I")
_RULE_KEY: Final = struct.Struct(">IQ")
_U64: Final = struct.Struct(">Q")
_FOOTER: Final = struct.Struct(">QII")
_FORMAT_KEY: Final = b"format"
_NEXT_NUMBER_KEY: Final = b"next-number"
_LAST_SEGMENT_KEY: Final = b"last-segment"
_HIGH_WATERMARKS_KEY: Final = b"high-watermarks"
_CLEANED_OFFSETS_KEY: Final = b"cleaned-offsets"
_RUN_KEY: Final = b"run"
_LOSS_KEY: Final = b"loss"


class StoreRun(msgspec.Struct, frozen=True, array_like=True):
    """The last use of the store: the boot id of the machine, and whether the store was closed."""

    boot_id: str
    closed: bool


class TruncationRule(NamedTuple):
    """A truncation that reaches sealed segments: batches in segments up to ``through_segment_id``
    that begin at or beyond ``offset`` do not exist."""

    through_segment_id: int
    offset: int


class StoreTable:
    """The table of one log folder."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        # Data that a killed process left only in the page cache must be on disk before it is used.
        environment.sync(True)
        with environment.begin(write=True) as transaction:
            self._partitions = environment.open_db(b"partitions", transaction)
            self._truncation_rules = environment.open_db(b"voids", transaction)
            self._producers = environment.open_db(b"producers", transaction)
            self._segments = environment.open_db(b"segments", transaction)
            self._store = environment.open_db(b"store", transaction)

    @classmethod
    def open(cls, directory: Path) -> "StoreTable":
        """Return the table in ``directory``, created if there is none.

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
        """Create the table completely or not at all. LMDB cannot open a file whose first pages were
        lost."""
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
        """Return the rows of all partitions, by number."""
        decoder = msgspec.msgpack.Decoder(PartitionRow)
        with self._environment.begin(self._partitions) as transaction:
            return [decoder.decode(value) for _, value in transaction.cursor()]

    def next_number(self) -> int:
        """Return the smallest local number that was never used."""
        with self._environment.begin(self._store) as transaction:
            return int(_NUMBER.unpack(transaction.get(_NEXT_NUMBER_KEY, _NUMBER.pack(0)))[0])

    def add_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Add partitions. Their numbers are never used again."""
        beyond = max(row.number for row in rows) + 1
        encode = msgspec.msgpack.Encoder().encode
        items = [(_NUMBER.pack(row.number), encode(row)) for row in rows]
        with self._environment.begin(write=True) as transaction:
            with transaction.cursor(self._partitions) as cursor:
                cursor.putmulti(items)
            transaction.put(_NEXT_NUMBER_KEY, _NUMBER.pack(beyond), db=self._store)

    def remove_partitions(self, numbers: Iterable[int]) -> None:
        """Remove partitions and all that the table holds about them."""
        with self._environment.begin(write=True) as transaction:
            has_voids = bool(transaction.stat(self._truncation_rules)["entries"])
            for number in numbers:
                transaction.delete(_NUMBER.pack(number), db=self._partitions)
                transaction.delete(_NUMBER.pack(number), db=self._producers)
                if not has_voids:
                    continue
                for rule in self._rules_of(transaction, number):
                    key = _RULE_KEY.pack(number, rule.through_segment_id)
                    transaction.delete(key, db=self._truncation_rules)

    def truncation_rules(self) -> dict[int, list[TruncationRule]]:
        """Return the truncation rules for sealed segments, by partition number."""
        found: dict[int, list[TruncationRule]] = {}
        with self._environment.begin(self._truncation_rules) as transaction:
            for key, value in transaction.cursor():
                number, through = _RULE_KEY.unpack(key)
                found.setdefault(number, []).append(TruncationRule(through, _U64.unpack(value)[0]))
        return found

    def record_truncations(self, truncations: Sequence[Truncation], sealed_segment_id: int) -> None:
        """Record truncation rules for segments up to ``sealed_segment_id``, and the new starts of
        logs.

        Nothing is written for a truncation that reaches no sealed segment and does not move the
        start of its log.
        """
        deep = [t for t in truncations if t.lowest_segment_id <= sealed_segment_id]
        moved = [t for t in truncations if t.log_start_offset is not None]
        if not deep and not moved:
            return
        with self._environment.begin(write=True) as transaction:
            for truncation in deep:
                self._add_rule(transaction, truncation.number, sealed_segment_id, truncation.offset)
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
        """Return, by partition number, the packed producer state from batches before the start of
        the log."""
        with self._environment.begin(self._producers) as transaction:
            return {_NUMBER.unpack(key)[0]: value for key, value in transaction.cursor()}

    def _add_rule(
        self, transaction: "lmdb.Transaction[bytes]", number: int, through: int, offset: int
    ) -> None:
        """Add a truncation rule, and remove the older rules that it covers."""
        for rule in self._rules_of(transaction, number):
            if rule.through_segment_id <= through and rule.offset >= offset:
                transaction.delete(
                    _RULE_KEY.pack(number, rule.through_segment_id), db=self._truncation_rules
                )
            elif rule.through_segment_id == through:
                offset = min(offset, rule.offset)
        transaction.put(
            _RULE_KEY.pack(number, through), _U64.pack(offset), db=self._truncation_rules
        )

    def _rules_of(
        self, transaction: "lmdb.Transaction[bytes]", number: int
    ) -> list[TruncationRule]:
        found = []
        with transaction.cursor(self._truncation_rules) as cursor:
            more = cursor.set_range(_RULE_KEY.pack(number, 0))
            while more:
                owner, through = _RULE_KEY.unpack(cursor.key())
                if owner != number:
                    break
                found.append(TruncationRule(through, _U64.unpack(cursor.value())[0]))
                more = cursor.next()
        return found

    def drop_truncation_rules_before(self, oldest_segment_id: int) -> None:
        """Remove the rules about segments that no longer exist, which are all older than
        ``oldest_segment_id``."""
        with self._environment.begin(self._truncation_rules, write=True) as transaction:
            for key in list(transaction.cursor().iternext(values=False)):
                if _RULE_KEY.unpack(key)[1] < oldest_segment_id:
                    transaction.delete(key)

    def segments(self) -> dict[int, bool]:
        """Return the ids of all segments, and whether each is durable."""
        with self._environment.begin(self._segments) as transaction:
            return {_U64.unpack(key)[0]: value[:1] == b"\1" for key, value in transaction.cursor()}

    def footers(self) -> dict[int, FooterPlace]:
        """Return where the footers of the sealed segments are, by id."""
        with self._environment.begin(self._segments) as transaction:
            return {
                _U64.unpack(key)[0]: FooterPlace(*_FOOTER.unpack_from(value, 1))
                for key, value in transaction.cursor()
                if len(value) > 1
            }

    def record_footer(self, segment_id: int, place: FooterPlace) -> None:
        """Record that the segment is durable with its footer. Do nothing if the segment is no
        longer in the table."""
        with self._environment.begin(self._segments, write=True) as transaction:
            key = _U64.pack(segment_id)
            if transaction.get(key) is not None:
                transaction.put(key, b"\1" + _FOOTER.pack(*place))

    def last_segment_id(self) -> int:
        """Return the highest segment id that was ever used, or 0 if there was none."""
        with self._environment.begin() as transaction:
            return self._last_segment_id(transaction)

    def record_segments(self, durable_by_id: Mapping[int, bool]) -> None:
        """Add segments, or change whether they are durable. Ids are never used again.

        The method is called from several threads. It reads the highest id in the transaction that
        writes it, because otherwise one of two threads could put an older id back.
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
        """Return the checkpointed high watermarks by partition number. Some of the partitions may
        have been deleted."""
        return self._checkpoint(_HIGH_WATERMARKS_KEY)

    def write_high_watermarks(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint of the high watermarks."""
        self._write_checkpoint(_HIGH_WATERMARKS_KEY, offsets)

    def cleaned_offsets(self) -> dict[int, int]:
        """Return, by partition number, the offset up to which each log is compacted. Some of the
        partitions may have been deleted."""
        return self._checkpoint(_CLEANED_OFFSETS_KEY)

    def write_cleaned_offsets(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint of the cleaned offsets."""
        self._write_checkpoint(_CLEANED_OFFSETS_KEY, offsets)

    def _checkpoint(self, key: bytes) -> dict[int, int]:
        with self._environment.begin(self._store) as transaction:
            packed = transaction.get(key, b"")
        return dict(struct.iter_unpack(">IQ", packed))

    def _write_checkpoint(self, key: bytes, offsets: Mapping[int, int]) -> None:
        pack = _RULE_KEY.pack
        packed = b"".join([pack(number, offset) for number, offset in offsets.items()])
        with self._environment.begin(self._store, write=True) as transaction:
            transaction.put(key, packed)

    def last_run(self) -> StoreRun | None:
        """Return how the store was last used, or None if it was never used."""
        with self._environment.begin(self._store) as transaction:
            value = transaction.get(_RUN_KEY)
        return None if value is None else msgspec.msgpack.decode(value, type=StoreRun)

    def record_run(self, run: StoreRun) -> None:
        with self._environment.begin(self._store, write=True) as transaction:
            transaction.put(_RUN_KEY, msgspec.msgpack.encode(run))

    def loss_is_unhandled(self) -> bool:
        """Return whether batches may have been lost and the loss has not been handled yet."""
        with self._environment.begin(self._store) as transaction:
            return transaction.get(_LOSS_KEY) is not None

    def record_loss(self, *, unhandled: bool) -> None:
        """Record that batches may be lost, or that the loss has been handled (rule 8)."""
        with self._environment.begin(self._store, write=True) as transaction:
            if unhandled:
                transaction.put(_LOSS_KEY, b"\1")
            else:
                transaction.delete(_LOSS_KEY)

    def close(self) -> None:
        self._environment.close()
