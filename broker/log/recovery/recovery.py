"""Opens a log folder: determines what it holds, what a power loss may have taken, and the log of
every partition.

A log is recovered only as far as it is contiguous: it ends at the first gap, and the rest of it is
removed by a truncation rule before anything is appended.
"""

import errno
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.folder_history import FolderHistory
from quorate.broker.log.checkpoints.partition_row import Truncation
from quorate.broker.log.checkpoints.store_table import FILE_NAME, StoreTable
from quorate.broker.log.checkpoints.table_rows import StoreRun, TruncationRule
from quorate.broker.log.options import LogOptions
from quorate.broker.log.recovery.recovered_log import RecoveredLog
from quorate.broker.log.segments.batch_index import Forgotten
from quorate.broker.log.segments.damage import DamagedSegment
from quorate.broker.log.segments.segment import Segment, is_unused
from quorate.broker.log.segments.segment_names import (
    UNFINISHED,
    remove_segment_files,
    remove_unfinished_segments,
    segment_id_of,
    segment_name,
    set_aside,
)
from quorate.broker.log.segments.system_errors import check_writable
from quorate.broker.log.writing.journal import CreateSegment, create_segment
from quorate.common.files.durable_files import sync_folder
from quorate.common.files.private_files import make_private_folder
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

NEWER_SEGMENT: Final = (
    "store.mdb was put back, or lost its last changes; the segment is set aside and the broker "
    "declares its logs lost"
)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RecoveredLogDirectory(msgspec.Struct, kw_only=True):
    """An open log folder, with all that was recovered from it."""

    table: StoreTable
    segments: dict[int, Segment]
    active: Segment
    following: Segment | None
    """The next segment, created ahead and still empty, or None."""
    superseded: Forgotten
    """The older versions of batches in ``active``, which must be kept in their segments for now."""
    logs: list[RecoveredLog]
    next_number: int
    log_may_be_lost: bool
    history: FolderHistory


def current_boot_id() -> str:
    """Return an id of the time since the machine started, or an empty string if the system has
    none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def recover(
    directory: Path, options: LogOptions, boot_id: str, now_ms: int
) -> RecoveredLogDirectory:
    """Open ``directory``. If it is empty, create a new store. ``now_ms`` is the wall clock.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if the folder is damaged or of another format; the message
            names the file.
        OSError: The folder cannot be used.
    """
    if not directory.exists():
        make_private_folder(directory)
        sync_folder(directory.parent)
    check_writable(directory, segment_name(0) + UNFINISHED)
    remove_unfinished_segments(directory)
    _check_not_orphaned(directory)
    table = StoreTable.open(directory)
    _discard_undurable(directory, table, boot_id)
    segments = _open_segments(directory, table)
    create = partial(create_segment, directory, options, table)
    return recover_logs(table, segments, options, boot_id, now_ms, create)


def recover_logs(
    table: StoreTable,
    segments: dict[int, Segment],
    options: LogOptions,
    boot_id: str,
    now_ms: int,
    create: CreateSegment,
) -> RecoveredLogDirectory:
    """Recover the logs in ``segments``, which are the segments in ``table``, oldest first. Remove
    what lies beyond a gap."""
    logs = _found_logs(table, segments.values(), now_ms - options.producer_expiration_ms)
    active, following = _choose_active(options, table, segments, create)
    written = [active] if following is None else [active, following]
    _seal_others(options, table, segments, written)
    _close_gaps(logs, active, table)
    _settle_durability(options, table, segments, active, following)
    table.drop_truncation_rules_before(min(segments))
    table.record_run(StoreRun(boot_id, closed=False))
    history = table.history()
    if options.incarnation_id:
        history = table.change_history(lambda known: known.with_incarnation(options.incarnation_id))
    if following is not None:
        del segments[following.id]
    return RecoveredLogDirectory(
        table=table,
        segments=segments,
        active=active,
        following=following,
        superseded=_keep_superseded(logs, active),
        logs=logs,
        next_number=table.next_number(),
        log_may_be_lost=table.loss_is_unhandled(),
        history=history,
    )


def _check_not_orphaned(directory: Path) -> None:
    """Refuse segments without their table: they cannot be read without it, but must not be deleted
    either."""
    if not (directory / FILE_NAME).exists() and any(directory.glob("segment-*.mdb")):
        raise KafkaError(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"log directory {directory} has segments but no {FILE_NAME}; restore it, or empty "
            "the directory so that this broker fetches its logs from their leaders",
        )


def _discard_undurable(directory: Path, table: StoreTable, boot_id: str) -> None:
    """After a power loss, discard segments that were never synced, because LMDB may crash when it
    reads them.

    Without a boot id every unclean end counts as a power loss. A store that was never used counts
    as one that has lost everything, because its disk may be the replacement of another (rule 8).
    """
    last_run = table.last_run()
    if last_run is None:
        table.record_loss(unhandled=True)
        return
    if last_run.closed or (boot_id and last_run.boot_id == boot_id):
        return
    suspects = [segment_id for segment_id, durable in table.segments().items() if not durable]
    if suspects:
        table.record_loss(unhandled=True)
    for segment_id in suspects:
        log.warning("log segment %d: discarded, the machine stopped before its sync", segment_id)
        remove_segment_files(directory / segment_name(segment_id))
    table.forget_segments(suspects)


def _open_segments(directory: Path, table: StoreTable) -> dict[int, Segment]:
    """Return every segment of the table by id, oldest first. A missing one is recorded as a loss
    and removed from the table.

    An unreadable segment is recorded as a loss too, and its file is set aside.
    """
    known, footers, commits = table.segments(), table.footers(), table.segment_commits()
    for path in sorted(directory.glob("segment-*.mdb")):
        if segment_id_of(path) not in known:
            _put_away(path, table)
    segments: dict[int, Segment] = {}
    for segment_id in sorted(known):
        path = directory / segment_name(segment_id)
        try:
            segments[segment_id] = opened = Segment.open(
                path, footers.get(segment_id), commits.get(segment_id, 0)
            )
            if opened.is_damaged:
                table.record_loss(unhandled=True)
        except FileNotFoundError:
            log.error("log segment %s is missing: its batches are lost here", path)
            _lose(table, segment_id)
        except DamagedSegment as damaged:
            log.error("%s; it is set aside, its batches are lost here", damaged.message)
            _lose(table, segment_id)
            set_aside(path)
    return segments


def _put_away(path: Path, table: StoreTable) -> None:
    """Remove a segment that was created but not added to the table, or removed from the table but
    not deleted: no log has a batch in it.

    Any other shows that the table is older than the segments. It is set aside.
    """
    segment_id = segment_id_of(path) or 0
    if segment_id <= table.last_segment_id() or is_unused(path):
        remove_segment_files(path)
        return
    log.error("log segment %s is newer than the table: %s", path, NEWER_SEGMENT)
    table.record_loss(unhandled=True)
    table.record_segments({segment_id: True})
    table.forget_segments([segment_id])
    set_aside(path)


def _lose(table: StoreTable, segment_id: int) -> None:
    table.record_loss(unhandled=True)
    table.forget_segments([segment_id])


def _choose_active(
    options: LogOptions, table: StoreTable, segments: dict[int, Segment], create: CreateSegment
) -> tuple[Segment, Segment | None]:
    """Return the segment to append to, and the one created ahead of it, if any.

    It is never a segment that a truncation rule applies to, because new batches would be removed at
    once, nor one that is damaged or that an earlier release wrote.
    """
    last_id = table.last_segment_id()
    newest = segments.get(last_id)
    if newest is None or not newest.may_be_written:
        newest = create(last_id + 1)
        segments[newest.id] = newest
        return newest, None
    truncation_rules = [
        rule for of_partition in table.truncation_rules().values() for rule in of_partition
    ]
    voided_id = max((rule.through_segment_id for rule in truncation_rules), default=0)
    before = segments.get(last_id - 1)
    if (
        newest.is_empty
        and before is not None
        and before.may_be_written
        and before.id > voided_id
        and before.used_bytes < options.segment_bytes
    ):
        return before, newest
    return newest, None


def _seal_others(
    options: LogOptions,
    table: StoreTable,
    segments: Mapping[int, Segment],
    written: Iterable[Segment],
) -> None:
    """Seal all segments but those in ``written``, which are the only ones that are written from now
    on."""
    for segment in written:
        segment.begin_writing(options.flush, options.segment_bytes)
    ids = {segment.id for segment in written}
    for segment in segments.values():
        if segment.id not in ids and not segment.is_sealed:
            _seal(table, segment)
        segment.forget_contents()


def _seal(table: StoreTable, segment: Segment) -> None:
    """Write the footer of the segment. On a full disk the segment is read without a footer, and the
    next start tries again."""
    try:
        table.record_footer(segment.id, segment.seal())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("log segment %s has no footer: %s", segment.path, error)


def _found_logs(
    table: StoreTable, segments: Iterable[Segment], producers_since_ms: int
) -> list[RecoveredLog]:
    """Return the log of every partition in the table, from what the segments hold.

    Producers in segments that were last written before ``producers_since_ms`` have expired. They
    are skipped, because there may be more of them in all segments than memory can hold.
    """
    truncation_rules: Mapping[int, list[TruncationRule]] = table.truncation_rules()
    producers, high_watermarks = table.producers(), table.high_watermarks()
    logs = {
        row.number: RecoveredLog(
            row,
            truncation_rules.get(row.number, ()),
            producers.get(row.number, b""),
            high_watermarks.get(row.number, row.log_start_offset),
        )
        for row in table.partitions()
    }
    for segment in segments:
        contents = segment.contents
        assert contents is not None
        is_recent = segment.written_at_ms >= producers_since_ms
        for run in contents.runs():
            found = logs.get(run.number)
            if found is not None:
                found.add(run, contents, segment, is_recent=is_recent)
        for epoch in contents.epochs:
            found = logs.get(epoch.number)
            if found is not None:
                found.add_epoch(epoch, segment)
    for found in logs.values():
        found.assemble()
    return list(logs.values())


def _close_gaps(logs: Iterable[RecoveredLog], active: Segment, table: StoreTable) -> None:
    """Add truncation rules for what lies beyond a gap. Otherwise it would reappear between later
    batches."""
    broken = [found for found in logs if found.has_gap]
    for found in broken:
        log.error(
            "%s-%d: the log has a gap at offset %d; what lies beyond is dropped",
            found.row.topic,
            found.row.partition,
            found.end_offset,
        )
    if broken:
        table.record_loss(unhandled=True)
        truncations = [Truncation(f.row.number, f.end_offset, 0) for f in broken]
        active.delete_from([(work.number, work.offset) for work in truncations])
        table.record_truncations(truncations, active.id - 1)


def _keep_superseded(logs: Iterable[RecoveredLog], active: Segment) -> Forgotten:
    """Keep the older versions of batches in ``active``, because a power loss may still take the
    newer ones.

    The run that wrote them kept the older versions too (``rewriting``), and this run continues to
    write there.
    """
    superseded = [each for found in logs for each in found.superseded_by(active.id)]
    for segment, count, size in superseded:
        segment.hold(count, size)
    return superseded


def _settle_durability(
    options: LogOptions,
    table: StoreTable,
    segments: Mapping[int, Segment],
    active: Segment,
    following: Segment | None,
) -> None:
    """Sync what an unclean end left unsynced, then record what this run will leave unsynced.

    A process that was killed inside a commit may have left data only in the page cache. That data
    is recovered and counts as durable, so the segments that are written are synced, whatever the
    table says.
    """
    written = {active.id} if following is None else {active.id, following.id}
    for segment_id, durable in table.segments().items():
        if not durable or segment_id in written:
            segments[segment_id].sync()
    synced = options.flush == "sync"
    table.record_segments(
        {segment_id: synced or segment_id not in written for segment_id in segments}
    )
