"""Making a damaged log folder one that a broker can start with, at the price of what is damaged.

A segment that cannot be read is set aside; a partition is cut at its first wrong batch. Both are
noted as a loss, so that the broker says so when it registers, leaves every ISR, and fetches what it
lacks from the leaders (rule 8). Nothing is deleted: a segment set aside keeps its bytes.
"""

from pathlib import Path

import msgspec

from broker.log.examination import Examined, Problem
from broker.log.options import LogOptions
from broker.log.segment import Segment
from broker.log.segment_files import SET_ASIDE, segment_name, set_aside
from broker.log.table import StoreTable
from broker.log.work import Truncation
from metadata_log.types import TopicPartition
from quorum.data_folder import sync_folder


class SetAside(msgspec.Struct, frozen=True, tag=True):
    """Take a segment out of the log."""

    segment_id: int
    why: str

    def __str__(self) -> str:
        name = segment_name(self.segment_id)
        return f"set {name} aside as {name}{SET_ASIDE} ({self.why})"


class Cut(msgspec.Struct, frozen=True, tag=True):
    """End a partition's log before an offset."""

    number: int
    topic: str
    partition: int
    offset: int
    why: str

    def __str__(self) -> str:
        where = TopicPartition(self.topic, self.partition)
        return f"cut {where} at offset {self.offset} ({self.why})"


Action = SetAside | Cut


def plan(examined: Examined) -> list[Action]:
    """What has to be done so that all that is left is right; empty: nothing is wrong."""
    actions: list[Action] = [
        SetAside(segment.segment_id, segment.problem)
        for segment in examined.segments
        if segment.problem and Path(segment.path).exists()
    ]
    first: dict[tuple[str, int], Problem] = {}
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
    """Do it, durably. The loss is noted first: a crash midway must not hide it."""
    table = StoreTable.open(directory)
    try:
        table.record_loss(unhandled=True)
        for action in actions:
            if isinstance(action, SetAside):
                set_aside(directory / segment_name(action.segment_id))
        sync_folder(directory)
        _cut(directory, table, [action for action in actions if isinstance(action, Cut)])
    finally:
        table.close()


def _cut(directory: Path, table: StoreTable, cuts: list[Cut]) -> None:
    """From the newest segment by deleting, from the others by a rule: it may be appended to."""
    if not cuts:
        return
    newest_id = table.last_segment_id()
    path = directory / segment_name(newest_id)
    if path.exists():
        newest = Segment.open(path)
        newest.begin_writing("sync", LogOptions().segment_bytes)
        newest.delete_from([(cut.number, cut.offset) for cut in cuts])
        newest.close()
    table.record_truncations([Truncation(cut.number, cut.offset, 0) for cut in cuts], newest_id - 1)
