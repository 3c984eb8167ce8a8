"""Logs that the quorum does not know, in the folder of a stopped broker (rule 7).

The broker has noted which they are. An operator deletes one, or restores it as the log of a
partition that the quorum knows.
"""

from pathlib import Path

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.recovery.examination import LogExamination, PartitionReport, examine
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

Name = tuple[bytes, int]
"""A topic id and the number of a partition."""


class StrayLog(msgspec.Struct, frozen=True, kw_only=True):
    """One stray. ``assigned_at`` is the metadata offset at which the broker was given it."""

    topic: str
    partition: int
    topic_id: str
    assigned_at: int
    log_start_offset: int
    end_offset: int
    size: int


def strays(directory: Path) -> list[StrayLog]:
    """Return the strays in a folder, which the caller has locked.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; the folder is no log folder, or its table cannot be read.
    """
    reports = _reports(examine(directory))
    table = StoreTable.open(directory)
    try:
        noted = set(table.history().strays)
        rows = [row for row in table.partitions() if _name(row) in noted]
    finally:
        table.close()
    return [
        StrayLog(
            topic=row.topic,
            partition=row.partition,
            topic_id=row.topic_id.hex(),
            assigned_at=row.assigned_at,
            log_start_offset=report.log_start_offset,
            end_offset=report.end_offset,
            size=report.size,
        )
        for row in sorted(rows, key=lambda row: (row.topic, row.partition))
        for report in (reports[row.number],)
    ]


def delete(directory: Path, topic_id: bytes, partition: int) -> None:
    """Delete a stray. Its batches mean nothing any more, and the next start frees their space.

    Raises:
        KafkaError: INVALID_REQUEST; there is no such stray, and what there is.
    """
    table = StoreTable.open(directory)
    try:
        row = _stray(table, (topic_id, partition))
        table.remove_partitions([row.number])
        table.change_history(lambda known: known.with_strays(_without(known.strays, row)))
    finally:
        table.close()


def restore(directory: Path, topic_id: bytes, partition: int, to: bytes) -> None:
    """Make a stray the log of the same partition number of the topic with the id ``to``.

    The replica is declared lost, because its ISR may know more than this log has: it leaves the ISR
    and catches up, unless an operator has it lead. The loss is noted first, so that a crash in
    between cannot hide it.

    Raises:
        KafkaError: INVALID_REQUEST; there is no such stray, or the partition has records here.
    """
    reports = _reports(examine(directory))
    table = StoreTable.open(directory)
    try:
        row = _stray(table, (topic_id, partition))
        taken = [one for one in table.partitions() if _name(one) == (to, partition)]
        for one in taken:
            report = reports[one.number]
            if report.end_offset > report.log_start_offset:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST,
                    f"{TopicPartition(one.topic, partition)} has a log of its own here, with "
                    f"offsets {report.log_start_offset} to {report.end_offset}: it would be lost",
                )
        table.change_history(lambda known: known.with_lost({*known.lost, (to, partition)}))
        if taken:
            table.remove_partitions([one.number for one in taken])
        assigned_at = max([row.assigned_at, *(one.assigned_at for one in taken)])
        table.replace_partition(msgspec.structs.replace(row, topic_id=to, assigned_at=assigned_at))
        table.change_history(lambda known: known.with_strays(_without(known.strays, row)))
    finally:
        table.close()


def _stray(table: StoreTable, name: Name) -> PartitionRow:
    noted = set(table.history().strays)
    rows = {_name(row): row for row in table.partitions()}
    if name in noted and name in rows:
        return rows[name]
    there = [
        f"{TopicPartition(rows[one].topic, one[1])} with id {one[0].hex()}"
        for one in sorted(noted & rows.keys())
    ]
    raise KafkaError(
        errors_pb2.INVALID_REQUEST,
        f"partition {name[1]} of topic id {name[0].hex()} is no stray; "
        f"{'the strays are ' + ', '.join(there) if there else 'there are no strays'}",
    )


def _name(row: PartitionRow) -> Name:
    return row.topic_id, row.partition


def _without(names: tuple[Name, ...], row: PartitionRow) -> list[Name]:
    return [one for one in names if one != _name(row)]


def _reports(examined: LogExamination) -> dict[int, PartitionReport]:
    return {report.number: report for report in examined.partitions}
