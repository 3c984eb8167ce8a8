"""``store.mdb``: the partitions of a store, and what is known about them that no segment can hold.

The table is small and always synced, whatever ``log.flush`` says. It has five databases, whose rows
have checksums (``checked_rows``):

    partitions  local number u32 → PartitionRow
    voids       local number u32 | through segment u64 → offset u64: batches of the partition that
                lie in segments up to that one and begin at or beyond the offset do not exist. This
                is how a truncation reaches sealed segments, which are never written again.
    producers   local number u32 → what is known of idempotent producers from batches before the
                start of the log; the rest is in the batches
    segments    segment id u64 → 1 if it is durable, 0 if a power loss may have damaged it | of a
                sealed one where its footer is: position u64, size, crc u32
    store       format, next local number, last segment id, high watermarks, how far logs are
                clean, how the last run ended, whether batches may be lost, the mark, the history of
                the folder

The whole file is checked before LMDB opens it (``table_check``). A table of format 1, whose rows
have no checksums, is rewritten in one transaction. An older release refuses a table of format 2.

LMDB lets one write transaction in at a time, so the table may be written from several threads.
"""

import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import lmdb
import msgspec

from quorate.broker.log.checkpoints.checked_rows import (
    STORE,
    CheckedRows,
    RowDamaged,
    RowReader,
    RowWriter,
    begin_rows,
)
from quorate.broker.log.checkpoints.folder_history import FolderHistory
from quorate.broker.log.checkpoints.partition_row import PartitionRow, Truncation
from quorate.broker.log.checkpoints.table_check import TableDamaged, check_table
from quorate.broker.log.checkpoints.table_rows import (
    CLEANED_OFFSETS_KEY,
    DATABASES,
    HIGH_WATERMARKS_KEY,
    HISTORY_KEY,
    LAST_SEGMENT_KEY,
    LOSS_KEY,
    MARK_KEY,
    NEXT_NUMBER_KEY,
    NUMBER,
    PARTITIONS,
    PRODUCERS,
    RULE_KEY,
    RULES,
    RUN_KEY,
    SEGMENT_COMMIT,
    SEGMENT_COMMITS_KEY,
    SEGMENTS,
    U64,
    StoreRun,
    TruncationRule,
    check_row,
    footer_in,
    number_in,
    packed_segment,
)
from quorate.broker.log.checkpoints.truncation_rows import add_rule, move_start, rules_of
from quorate.broker.log.segments.segment_contents import FooterPlace
from quorate.broker.log.segments.segment_names import UNFINISHED
from quorate.broker.log.segments.system_errors import refuse_system_error
from quorate.common.files.durable_files import sync_folder
from quorate.common.files.lmdb_lock_file import allocate_lock_file, lock_file
from quorate.common.files.private_files import FILE_MODE

FILE_NAME: Final = "store.mdb"
FORMAT: Final = 2
_FORMATS: Final = (1, FORMAT)
_MAP_BYTES: Final = 4 << 30
"""The address space of the LMDB map, which is not memory. It is far more than 200,000 partitions
need."""

_UNREADABLE: Final = (RowDamaged, msgspec.MsgspecError, struct.error)


class StoreTable:
    """The table of one log folder."""

    def __init__(self, path: Path, environment: lmdb.Environment) -> None:
        self._path = path
        # Data that a killed process left only in the page cache must be on disk before it is used.
        environment.sync(True)
        self._rows = CheckedRows(environment, DATABASES)

    @classmethod
    def open(cls, directory: Path) -> "StoreTable":
        """Return the table in ``directory``, created if there is none.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; damaged, or of another format.
            OSError: the folder cannot be written.
        """
        path = directory / FILE_NAME
        if not path.exists():
            _create(path)
        version = check_table(path, DATABASES, _FORMATS, check_row)
        environment = _opened(path)
        try:
            if version != FORMAT:
                begin_rows(environment, DATABASES, FORMAT)
            return cls(path, environment)
        except (lmdb.Error, RowDamaged) as error:
            environment.close()
            raise TableDamaged(path, str(error)) from error

    @classmethod
    def open_copy(cls, directory: Path, copy: Path) -> "StoreTable":
        """Return a copy of the table, in the folder ``copy``. The table itself stays as it is, also
        where an earlier release wrote it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; damaged, or of another format.
            OSError: the table cannot be read, or the copy not be written.
        """
        path = directory / FILE_NAME
        check_table(path, DATABASES, _FORMATS, check_row)
        shutil.copyfile(path, copy / FILE_NAME)
        return cls.open(copy)

    @contextmanager
    def _reading(self) -> Iterator[RowReader]:
        try:
            with self._rows.reading() as rows:
                yield rows
        except _UNREADABLE as error:
            raise TableDamaged(self._path, str(error)) from error

    @contextmanager
    def _writing(self) -> Iterator[RowWriter]:
        try:
            with self._rows.writing() as rows:
                yield rows
        except _UNREADABLE as error:
            raise TableDamaged(self._path, str(error)) from error

    def _read(self, key: bytes) -> bytes | None:
        """Return the value of a row of the store."""
        with self._reading() as rows:
            return rows.get(STORE, key)

    def _write(self, key: bytes, value: bytes) -> None:
        with self._writing() as rows:
            rows.put(STORE, key, value)

    def partitions(self) -> list[PartitionRow]:
        """Return the rows of all partitions, by number."""
        decode = msgspec.msgpack.Decoder(PartitionRow).decode
        with self._reading() as rows:
            return [decode(value) for _, value in rows.rows(PARTITIONS)]

    def next_number(self) -> int:
        """Return the smallest local number that was never used."""
        with self._reading() as rows:
            return number_in(NUMBER, rows.get(STORE, NEXT_NUMBER_KEY))

    def add_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Add partitions. Their numbers are never used again."""
        beyond = max(row.number for row in rows) + 1
        encode = msgspec.msgpack.Encoder().encode
        with self._writing() as writer:
            for row in rows:
                writer.put(PARTITIONS, NUMBER.pack(row.number), encode(row))
            writer.put(STORE, NEXT_NUMBER_KEY, NUMBER.pack(beyond))

    def replace_partition(self, row: PartitionRow) -> None:
        """Replace the row of a partition that is there, by its number."""
        with self._writing() as writer:
            writer.put(PARTITIONS, NUMBER.pack(row.number), msgspec.msgpack.encode(row))

    def remove_partitions(self, numbers: Iterable[int]) -> None:
        """Remove partitions and all that the table holds about them."""
        with self._writing() as rows:
            has_rules = any(True for _ in rows.rows(RULES))
            for number in numbers:
                rows.delete(PARTITIONS, NUMBER.pack(number))
                rows.delete(PRODUCERS, NUMBER.pack(number))
                if not has_rules:
                    continue
                for rule in rules_of(rows, number):
                    rows.delete(RULES, RULE_KEY.pack(number, rule.through_segment_id))

    def truncation_rules(self) -> dict[int, list[TruncationRule]]:
        """Return the truncation rules for sealed segments, by partition number."""
        found: dict[int, list[TruncationRule]] = {}
        with self._reading() as rows:
            for key, value in rows.rows(RULES):
                number, through = RULE_KEY.unpack(key)
                found.setdefault(number, []).append(TruncationRule(through, number_in(U64, value)))
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
        with self._writing() as rows:
            for truncation in deep:
                add_rule(rows, truncation.number, sealed_segment_id, truncation.offset)
            for truncation in moved:
                move_start(rows, truncation)

    def producers(self) -> dict[int, bytes]:
        """Return, by partition number, the packed producer state from batches before the start of
        the log."""
        with self._reading() as rows:
            return {number_in(NUMBER, key): value for key, value in rows.rows(PRODUCERS)}

    def drop_truncation_rules_before(self, oldest_segment_id: int) -> None:
        """Remove the rules about segments that no longer exist, which are all older than
        ``oldest_segment_id``."""
        with self._writing() as rows:
            for key in [key for key, _ in rows.rows(RULES)]:
                if RULE_KEY.unpack(key)[1] < oldest_segment_id:
                    rows.delete(RULES, key)

    def segments(self) -> dict[int, bool]:
        """Return the ids of all segments, and whether each is durable."""
        with self._reading() as rows:
            return {number_in(U64, key): value[:1] == b"\1" for key, value in rows.rows(SEGMENTS)}

    def footers(self) -> dict[int, FooterPlace]:
        """Return where the footers of the sealed segments are, by id."""
        with self._reading() as rows:
            return {
                number_in(U64, key): place
                for key, value in rows.rows(SEGMENTS)
                if (place := footer_in(value)) is not None
            }

    def record_footer(self, segment_id: int, place: FooterPlace) -> None:
        """Record that the segment is durable with its footer. Do nothing if the segment is no
        longer in the table."""
        with self._writing() as rows:
            key = U64.pack(segment_id)
            if rows.get(SEGMENTS, key) is not None:
                rows.put(SEGMENTS, key, packed_segment(place))

    def last_segment_id(self) -> int:
        """Return the highest segment id that was ever used, or 0 if there was none."""
        with self._reading() as rows:
            return number_in(U64, rows.get(STORE, LAST_SEGMENT_KEY))

    def record_segments(self, durable_by_id: Mapping[int, bool]) -> None:
        """Add segments, or change whether they are durable. Ids are never used again.

        The method is called from several threads. It reads the highest id in the transaction that
        writes it, because otherwise one of two threads could put an older id back.
        """
        with self._writing() as rows:
            last_id = max([number_in(U64, rows.get(STORE, LAST_SEGMENT_KEY)), *durable_by_id])
            for segment_id, durable in durable_by_id.items():
                key = U64.pack(segment_id)
                footer = (rows.get(SEGMENTS, key) or b"")[1:]
                rows.put(SEGMENTS, key, (b"\1" if durable else b"\0") + footer)
            rows.put(STORE, LAST_SEGMENT_KEY, U64.pack(last_id))

    def forget_segments(self, segment_ids: Iterable[int]) -> None:
        with self._writing() as rows:
            for segment_id in segment_ids:
                rows.delete(SEGMENTS, U64.pack(segment_id))

    def high_watermarks(self) -> dict[int, int]:
        """Return the checkpointed high watermarks by partition number. Some of the partitions may
        have been deleted."""
        return self._checkpoint(HIGH_WATERMARKS_KEY)

    def segment_commits(self) -> dict[int, int]:
        """Return commits of LMDB that segments without footer have at least, by id."""
        with self._reading() as rows:
            return dict(SEGMENT_COMMIT.iter_unpack(rows.get(STORE, SEGMENT_COMMITS_KEY) or b""))

    def write_high_watermarks(
        self,
        offsets: Mapping[int, int],
        commits: Mapping[int, int] = MappingProxyType({}),
        least_mark: int = 0,
    ) -> int:
        """Replace the checkpoint of the high watermarks. ``commits`` are for ``segment_commits``.

        Raise the mark with it, to ``least_mark`` at least, and return the new
        mark: a copy of the folder that lacks this checkpoint has a lower one."""
        with self._writing() as rows:
            rows.put(STORE, HIGH_WATERMARKS_KEY, _packed_offsets(offsets))
            packed = b"".join([SEGMENT_COMMIT.pack(*one) for one in commits.items()])
            rows.put(STORE, SEGMENT_COMMITS_KEY, packed)
            mark = max(number_in(U64, rows.get(STORE, MARK_KEY)) + 1, least_mark)
            rows.put(STORE, MARK_KEY, U64.pack(mark))
        return mark

    def cleaned_offsets(self) -> dict[int, int]:
        """Return, by partition number, the offset up to which each log is compacted. Some of the
        partitions may have been deleted."""
        return self._checkpoint(CLEANED_OFFSETS_KEY)

    def write_cleaned_offsets(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint of the cleaned offsets."""
        self._write(CLEANED_OFFSETS_KEY, _packed_offsets(offsets))

    def _checkpoint(self, key: bytes) -> dict[int, int]:
        with self._reading() as rows:
            return dict(RULE_KEY.iter_unpack(rows.get(STORE, key) or b""))

    def last_run(self) -> StoreRun | None:
        """Return how the store was last used, or None if it was never used."""
        with self._reading() as rows:
            value = rows.get(STORE, RUN_KEY)
            return None if value is None else msgspec.msgpack.decode(value, type=StoreRun)

    def record_run(self, run: StoreRun) -> None:
        self._write(RUN_KEY, msgspec.msgpack.encode(run))

    def loss_is_unhandled(self) -> bool:
        """Return whether batches may have been lost and the loss has not been handled yet."""
        with self._reading() as rows:
            return rows.get(STORE, LOSS_KEY) is not None

    def record_loss(self, *, unhandled: bool) -> None:
        """Record that batches may be lost, or that the loss has been handled (rule 8)."""
        with self._writing() as rows:
            if unhandled:
                rows.put(STORE, LOSS_KEY, b"\1")
            else:
                rows.delete(STORE, LOSS_KEY)

    def mark(self) -> int:
        """Return the mark, which grows with every checkpoint of high watermarks, from 0."""
        with self._reading() as rows:
            return number_in(U64, rows.get(STORE, MARK_KEY))

    def history(self) -> FolderHistory:
        """Return what the folder knows of its own history."""
        with self._reading() as rows:
            return _history_in(rows)

    def change_history(self, change: Callable[[FolderHistory], FolderHistory]) -> FolderHistory:
        """Change the history of the folder, and return it. It is durable on return.

        The method is called from several threads, so it reads in the transaction that writes.
        """
        with self._writing() as rows:
            before = _history_in(rows)
            after = change(before)
            if after != before:
                rows.put(STORE, HISTORY_KEY, msgspec.msgpack.encode(after))
        return after

    def close(self) -> None:
        self._rows.environment.close()


def _history_in(rows: RowReader) -> FolderHistory:
    value = rows.get(STORE, HISTORY_KEY)
    return FolderHistory() if value is None else msgspec.msgpack.decode(value, type=FolderHistory)


def _packed_offsets(offsets: Mapping[int, int]) -> bytes:
    pack = RULE_KEY.pack
    return b"".join([pack(number, offset) for number, offset in offsets.items()])


def _opened(path: Path) -> lmdb.Environment:
    allocate_lock_file(path)
    try:
        return lmdb.open(
            str(path),
            subdir=False,
            mode=FILE_MODE,
            map_size=_MAP_BYTES,
            max_dbs=5,
            readahead=False,
        )
    except lmdb.Error as error:
        refuse_system_error(path, error)
        raise TableDamaged(path, str(error)) from error


def _create(path: Path) -> None:
    """Create the table completely or not at all. LMDB cannot open a file whose first pages were
    lost."""
    unfinished = path.with_name(path.name + UNFINISHED)
    for leftover in (unfinished, lock_file(unfinished)):
        leftover.unlink(missing_ok=True)
    environment = _opened(unfinished)
    begin_rows(environment, DATABASES, FORMAT)
    environment.sync(True)
    environment.close()
    unfinished.rename(path)
    lock_file(unfinished).unlink(missing_ok=True)
    sync_folder(path.parent)
