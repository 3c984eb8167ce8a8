"""Repairs a damaged log folder so that a broker can start with it, at the price of the damaged
data.

A segment that cannot be read is set aside, and a partition is truncated at its first damaged batch.
Both are recorded as a loss, so that the broker says so when it registers, leaves every ISR, and
fetches what it lacks from the leaders (rule 8). Nothing is deleted: a segment that is set aside
keeps its bytes. If the table is damaged, it and all segments are set aside.
"""

from pathlib import Path

import msgspec

from quorate.broker.log.checkpoints.partition_row import Truncation
from quorate.broker.log.checkpoints.store_table import FILE_NAME, StoreTable
from quorate.broker.log.checkpoints.table_check import TableDamaged
from quorate.broker.log.options import LogOptions
from quorate.broker.log.recovery.examination import LogExamination, LogProblem, examine
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_names import SET_ASIDE, segment_name, set_aside
from quorate.common.files.durable_files import sync_folder
from quorate.common.types import TopicPartition


class SetAside(msgspec.Struct, frozen=True, tag=True):
    """Remove a segment from the log, but keep its file."""

    segment_id: int
    why: str

    def __str__(self) -> str:
        name = segment_name(self.segment_id)
        return f"set {name} aside as {name}{SET_ASIDE} ({self.why})"


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """Never write a segment again whose pages are damaged. What can be read of it stays."""

    segment_id: int
    why: str

    def __str__(self) -> str:
        return f"read what is left of {segment_name(self.segment_id)} ({self.why})"


class Cut(msgspec.Struct, frozen=True, tag=True):
    """Truncate a partition's log to an offset."""

    number: int
    topic: str
    partition: int
    offset: int
    why: str

    def __str__(self) -> str:
        where = TopicPartition(self.topic, self.partition)
        return f"cut {where} at offset {self.offset} ({self.why})"


class StartOver(msgspec.Struct, frozen=True, tag=True):
    """Set the table and all segments aside: without the table nobody can tell what is in them."""

    why: str

    def __str__(self) -> str:
        return f"set {FILE_NAME} and all segments aside as *{SET_ASIDE} ({self.why})"


Action = SetAside | GiveUp | Cut | StartOver


def plan_repair(directory: Path) -> list[Action]:
    """Examine the folder, which the caller has locked, and return the actions of ``plan``.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; the folder is no log folder, or of another release.
    """
    try:
        return plan(examine(directory))
    except TableDamaged as damaged:
        return [StartOver(damaged.problem)]


def plan(examined: LogExamination) -> list[Action]:
    """Return the actions after which the folder is valid, or an empty list if it is valid
    already."""
    actions: list[Action] = [
        SetAside(segment.segment_id, segment.problem)
        for segment in examined.segments
        if segment.problem and Path(segment.path).exists()
    ]
    actions += [
        GiveUp(segment.segment_id, segment.page_problem)
        for segment in examined.segments
        if segment.page_problem
    ]
    first: dict[tuple[str, int], LogProblem] = {}
    for problem in examined.problems:
        if problem.topic:
            first.setdefault((problem.topic, problem.partition), problem)
    for report in examined.partitions:
        found = first.get((report.topic, report.partition))
        if found is not None:
            actions.append(
                Cut(
                    number=report.number,
                    topic=report.topic,
                    partition=report.partition,
                    offset=report.end_offset,
                    why=str(found),
                )
            )
    return actions


def carry_out(directory: Path, actions: list[Action]) -> None:
    """Carry the actions out, durably. The loss is recorded first, so that a crash in between cannot
    hide it. A folder without a table is one that has lost everything."""
    if any(isinstance(action, StartOver) for action in actions):
        _start_over(directory)
        return
    table = StoreTable.open(directory)
    try:
        table.record_loss(unhandled=True)
        for action in actions:
            if isinstance(action, SetAside):
                set_aside(directory / segment_name(action.segment_id))
            elif isinstance(action, GiveUp):
                _give_up(directory, table, action.segment_id)
        sync_folder(directory)
        _cut(directory, table, [action for action in actions if isinstance(action, Cut)])
    finally:
        table.close()


def _start_over(directory: Path) -> None:
    """Set all aside, the table last: after a crash in between it is still the damaged one."""
    for path in sorted(directory.glob("segment-*.mdb")):
        set_aside(path)
    sync_folder(directory)
    set_aside(directory / FILE_NAME)
    sync_folder(directory)


def _give_up(directory: Path, table: StoreTable, segment_id: int) -> None:
    """Seal a segment with what can be read of it."""
    segment = Segment.open(directory / segment_name(segment_id))
    try:
        table.record_footer(segment_id, segment.seal())
    finally:
        segment.close()


def _cut(directory: Path, table: StoreTable, cuts: list[Cut]) -> None:
    """Truncate logs: in the newest segment by deleting batches, because it may be appended to; in
    the others by a truncation rule."""
    if not cuts:
        return
    through_id = table.last_segment_id()
    path = directory / segment_name(through_id)
    if path.exists():
        newest = Segment.open(path, table.footers().get(through_id))
        if newest.may_be_written:
            through_id -= 1
            newest.begin_writing("sync", LogOptions().segment_bytes)
            newest.delete_from([(cut.number, cut.offset) for cut in cuts])
        newest.close()
    table.record_truncations([Truncation(cut.number, cut.offset, 0) for cut in cuts], through_id)
