"""Write operations: the requests of the event loop to the log writer, which does equal kinds in
groups, in order.

On a full disk the operations that free space go ahead of the others.
"""

from collections.abc import Iterable
from typing import NamedTuple

from quorate.broker.log.checkpoints.partition_row import PartitionRow, Truncation
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.stored.relocation import Relocation


class PartitionCreation(NamedTuple):
    """Add a partition to the table, before any of its batches is durable."""

    row: PartitionRow


class PartitionDeletion(NamedTuple):
    """Remove partitions from the table. Their batches have no meaning from then on."""

    numbers: tuple[int, ...]


class HostedThrough(NamedTuple):
    """Record that every partition assigned up to this metadata offset has a log here.

    It is queued behind the creations of these logs, and needs no commit of its own for each.
    """

    offset: int


class SegmentRoll:
    """Seal the active segment, if it holds a batch."""

    __slots__ = ()


WriteOperation = (
    PendingBatch
    | Relocation
    | SegmentRoll
    | PartitionCreation
    | PartitionDeletion
    | Truncation
    | HostedThrough
)


def frees_space(work: WriteOperation) -> bool:
    """Return whether ``work`` may go ahead of operations that wait for space, because it lets
    segments be deleted.

    Deletions may, because the waiting operations on those partitions are only batches that are
    dropped already. So may a move of the log start, because the new start lies in what is durable,
    before everything that waits.
    """
    return isinstance(work, PartitionDeletion) or (
        isinstance(work, Truncation) and work.moves_start_alone
    )


def space_freeing_first(
    works: Iterable[WriteOperation],
) -> tuple[list[WriteOperation], list[WriteOperation]]:
    """Return ``works`` as (operations that free space, operations that must wait), each in order.

    A partition that is deleted before it was added to the table is never added.
    """
    first: list[WriteOperation] = []
    waiting: list[WriteOperation] = []
    for work in works:
        (first if frees_space(work) else waiting).append(work)
    gone = {
        number for work in first if isinstance(work, PartitionDeletion) for number in work.numbers
    }
    still = [
        work
        for work in waiting
        if not (isinstance(work, PartitionCreation) and work.row.number in gone)
    ]
    return first, still
