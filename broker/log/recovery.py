"""Opening a log folder: what is there, what a power loss may have taken, and every partition's log.

What is on disk is believed only as far as it continues: a partition's log ends at the first gap,
and the rest of it is voided before anything is appended.
"""

import errno
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from broker.errors import KafkaError
from broker.log.damage import DamagedSegment
from broker.log.journal import CreateSegment, create_segment
from broker.log.options import LogOptions
from broker.log.recovered_log import RecoveredLog
from broker.log.segment import Segment
from broker.log.segment_files import (
    UNFINISHED,
    remove_segment_files,
    remove_unfinished_segments,
    segment_id_of,
    segment_name,
    set_aside,
)
from broker.log.stored_log import Forgotten
from broker.log.system_errors import check_writable
from broker.log.table import FILE_NAME, Run, StoreTable, Void
from broker.log.work import Truncation
from quorate_proto.v1 import errors_pb2
from quorum.data_folder import sync_folder

log = logging.getLogger(__name__)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Recovered(msgspec.Struct, kw_only=True):
    """An open log folder."""

    table: StoreTable
    segments: dict[int, Segment]
    active: Segment
    following: Segment | None
    """Created ahead, and still empty."""
    superseded: Forgotten
    """What ``active`` holds newer versions of; it lives in its segments for now."""
    logs: list[RecoveredLog]
    next_number: int
    log_may_be_lost: bool


def current_boot_id() -> str:
    """Identifies the time since the machine started; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def recover(directory: Path, options: LogOptions, boot_id: str, now_ms: int) -> Recovered:
    """Open what is in ``directory``; a fresh store if there is nothing. ``now_ms``: wall clock.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; damaged or of another format, the message says which file.
        OSError: the folder cannot be used.
    """
    if not directory.exists():
        directory.mkdir(parents=True)
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
) -> Recovered:
    """The logs in ``segments``, all that ``table`` knows, oldest first; voids what has a gap."""
    logs = _found_logs(table, segments.values(), now_ms - options.producer_expiration_ms)
    active, following = _choose_active(options, table, segments, create)
    written = [active] if following is None else [active, following]
    _seal_others(options, table, segments, written)
    _close_gaps(logs, active, table)
    _settle_durability(options, table, segments, active, following)
    table.drop_voids_before(min(segments))
    table.record_run(Run(boot_id, closed=False))
    if following is not None:
        del segments[following.id]
    return Recovered(
        table=table,
        segments=segments,
        active=active,
        following=following,
        superseded=_keep_superseded(logs, active),
        logs=logs,
        next_number=table.next_number(),
        log_may_be_lost=table.loss_is_unhandled(),
    )


def _check_not_orphaned(directory: Path) -> None:
    """Segments without their table mean nothing; but they are somebody's data."""
    if not (directory / FILE_NAME).exists() and any(directory.glob("segment-*.mdb")):
        raise KafkaError(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"log directory {directory} has segments but no {FILE_NAME}; restore it, or empty "
            "the directory so that this broker fetches its logs from their leaders",
        )


def _discard_undurable(directory: Path, table: StoreTable, boot_id: str) -> None:
    """After a power loss, segments that were never synced go: LMDB may not survive reading them.

    Without a boot id every unclean end counts as a power loss. A store that was never used has
    lost everything, for all it knows: its disk may be the replacement of another (rule 8).
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
    """Every known segment by id, oldest first. A missing one is a loss, and then forgotten.

    So is one that cannot be read; its file is set aside.
    """
    known, footers = table.segments(), table.footers()
    for path in directory.glob("segment-*.mdb"):
        if segment_id_of(path) not in known:
            # Created and not entered, or taken out and not unlinked: either way without batches.
            remove_segment_files(path)
    segments: dict[int, Segment] = {}
    for segment_id in sorted(known):
        path = directory / segment_name(segment_id)
        try:
            segments[segment_id] = Segment.open(path, footers.get(segment_id))
        except FileNotFoundError:
            log.error("log segment %s is missing: its batches are lost here", path)
            _lose(table, segment_id)
        except DamagedSegment as damaged:
            log.error("%s; it is set aside, its batches are lost here", damaged.message)
            _lose(table, segment_id)
            set_aside(path)
    return segments


def _lose(table: StoreTable, segment_id: int) -> None:
    table.record_loss(unhandled=True)
    table.forget_segments([segment_id])


def _choose_active(
    options: LogOptions, table: StoreTable, segments: dict[int, Segment], create: CreateSegment
) -> tuple[Segment, Segment | None]:
    """The segment to append to, and the one created ahead of it, if any.

    Never one that a void reaches, or what is appended would be void from the start.
    """
    last_id = table.last_segment_id()
    newest = segments.get(last_id)
    if newest is None:
        newest = create(last_id + 1)
        segments[newest.id] = newest
        return newest, None
    voids = [void for of_partition in table.voids().values() for void in of_partition]
    voided_id = max((void.through_segment_id for void in voids), default=0)
    before = segments.get(last_id - 1)
    if (
        newest.is_empty
        and before is not None
        and not before.is_sealed
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
    """Write to ``written`` from now on, and never again to the others."""
    for segment in written:
        segment.begin_writing(options.flush, options.segment_bytes)
    ids = {segment.id for segment in written}
    for segment in segments.values():
        if segment.id not in ids and not segment.is_sealed:
            _seal(table, segment)
        segment.forget_contents()


def _seal(table: StoreTable, segment: Segment) -> None:
    """Write its footer; on a full disk it is read without one, and the next start tries again."""
    try:
        table.record_footer(segment.id, segment.seal())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("log segment %s has no footer: %s", segment.path, error)


def _found_logs(
    table: StoreTable, segments: Iterable[Segment], producers_since_ms: int
) -> list[RecoveredLog]:
    """The log of every partition in the table, from what the segments hold.

    Producers in segments that were last written before ``producers_since_ms`` have expired: there
    may be more of them in all that is kept than memory has room for.
    """
    voids: Mapping[int, list[Void]] = table.voids()
    producers, high_watermarks = table.producers(), table.high_watermarks()
    logs = {
        row.number: RecoveredLog(
            row,
            voids.get(row.number, ()),
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
    """Void what lies beyond a gap, or it would come back between later batches."""
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
    """Have live what ``active`` holds newer versions of: a power loss may take those yet.

    The run that wrote them kept the older ones (``rewriting``), and this one goes on writing there.
    """
    superseded = [each for found in logs for each in found.superseded_by(active.id)]
    for segment, count, size in superseded:
        segment.live_batches += count
        segment.live_bytes += size
    return superseded


def _settle_durability(
    options: LogOptions,
    table: StoreTable,
    segments: Mapping[int, Segment],
    active: Segment,
    following: Segment | None,
) -> None:
    """Make good what an unclean end left unsynced, then say what this run will leave unsynced.

    A process that was killed inside a commit may have left in memory alone what is read here, and
    counts as durable from now on: so what goes on being written is synced, whatever the table says.
    """
    written = {active.id} if following is None else {active.id, following.id}
    for segment_id, durable in table.segments().items():
        if not durable or segment_id in written:
            segments[segment_id].sync()
    synced = options.flush == "sync"
    table.record_segments(
        {segment_id: synced or segment_id not in written for segment_id in segments}
    )
