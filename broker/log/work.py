"""What the event loop asks of the log's writer. Done in the order asked; equal kinds in groups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from broker.log.options import Records

if TYPE_CHECKING:
    from broker.log.batch_index import Placed


class PartitionRow(msgspec.Struct, frozen=True, array_like=True):
    """A partition of this store. ``number`` stands for it in every key and is never reused."""

    number: int
    topic_id: bytes
    partition: int
    topic: str
    log_start_offset: int = 0
    assigned_at: int = 0
    """Metadata offset at which this broker was given the partition; 0: not recorded."""


class PendingBatch:
    """A batch from its append until it leaves the memory tail; the bytes that LMDB is handed.

    ``epoch_start_offset``: where its leader epoch begins, so that the history is written together
    with the first batch of an epoch. ``dropped``: truncated or deleted before it was flushed.
    """

    __slots__ = (
        "base_offset",
        "dropped",
        "epoch_start_offset",
        "flushed",
        "last_offset",
        "leader_epoch",
        "number",
        "records",
        "size",
    )

    def __init__(
        self,
        number: int,
        base_offset: int,
        last_offset: int,
        records: Records,
        leader_epoch: int,
        epoch_start_offset: int,
    ) -> None:
        self.number = number
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.records = records
        self.size = len(records)
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.flushed = False
        self.dropped = False


class Creation(NamedTuple):
    """Enter a partition into the table, before any of its batches is durable."""

    row: PartitionRow


class Deletion(NamedTuple):
    """Take partitions out of the table: their batches mean nothing from then on."""

    numbers: tuple[int, ...]


NO_SEGMENT: Final = 2**63
"""Beyond every segment: none holds a batch that a truncation voids."""
ANY_SEGMENT: Final = 0
"""Before every segment: any of them may hold an older version of one."""


class Truncation(NamedTuple):
    """Void the batches of a partition that begin at or beyond ``offset``.

    ``lowest_segment_id``: the oldest segment that may hold one, so that a sealed one is voided by
    a rule in the table; ``ANY_SEGMENT``, if batches were written again; ``NO_SEGMENT``: the start
    of the log moves, and that is all.
    ``log_start_offset``: the log starts there from now on; None: where it did. ``producers``: what
    is known of producers from batches before it (``producers.pack_before``).
    """

    number: int
    offset: int
    lowest_segment_id: int
    log_start_offset: int | None = None
    producers: bytes = b""

    @property
    def moves_start_alone(self) -> bool:
        """Whether it voids no batch: the log begins later, and that is all."""
        return self.lowest_segment_id == NO_SEGMENT


class Relocation:
    """Batches of one partition, written once more: into the active segment, in place of ``old``.

    ``old``: successive batches in sealed segments. Each of ``batches`` spans the offsets of one or
    more of them, all together span those of all, so that the newest version of every offset counts
    when the store opens. With equal bytes it is a copy that lets the old segment go. Durable
    together. ``is_done``: they have taken the place of ``old``.
    """

    __slots__ = ("batches", "is_done", "max_timestamps", "number", "old", "size")

    def __init__(
        self,
        number: int,
        old: Sequence["Placed"],
        batches: Sequence[PendingBatch],
        max_timestamps: Sequence[int],
    ) -> None:
        self.number = number
        self.old = old
        self.batches = batches
        self.max_timestamps = max_timestamps
        self.is_done = False
        self.size = sum(batch.size for batch in batches)


class Roll:
    """Seal the active segment, if there is a batch in it."""

    __slots__ = ()


Work = PendingBatch | Relocation | Roll | Creation | Deletion | Truncation
