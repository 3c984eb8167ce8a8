"""The partitions of a snapshot in packed columns: about 11 bytes each.

200,000 partitions are normal, and encoding or decoding them must not take a second: whole columns
go through C code. A cluster has few distinct replica lists. Each is written once, with the first
partition that has it, and a partition holds the numbers of its lists.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from quorate.common.types import BrokerId
from quorate.metadata_log.codec import brokers
from quorate.metadata_log.packed_partitions import (
    BLOCK,
    Columns,
    PackedPartitions,
    Packer,
    columns_of,
    leaves_of,
)
from quorate.metadata_log.partitions import Partition, Topic
from quorate_proto.v1 import metadata_pb2 as pb

SLICE: Final = BLOCK
"""Partitions in one record. Another thread gets the interpreter only between two records."""


class _ListNumbers(dict[tuple[BrokerId, ...], int]):
    """Numbers the broker lists. ``new`` has those that were met since it was last emptied."""

    def __init__(self) -> None:
        self.new: list[tuple[BrokerId, ...]] = []

    def __missing__(self, members: tuple[BrokerId, ...]) -> int:
        number = self[members] = len(self)
        self.new.append(members)
        return number


class ColumnsEncoder:
    """Encodes the topics of one snapshot, in the order in which they will be read."""

    def __init__(self) -> None:
        self._numbers = _ListNumbers()

    def states(self, topic: Topic) -> Iterator[pb.TopicState]:
        """Return the topic as records with slices of its partitions; at least one record."""
        first = 0
        for columns in _slices(topic):
            yield pb.TopicState(
                name=topic.name,
                topic_id=topic.topic_id,
                version=topic.version,
                first_partition=first,
                partitions=self._encoded(columns),
                leader_epoch_floor=topic.leader_epoch_floor,
                removals=[
                    pb.PastRemovalState(first_partition=one.first_partition, offset=one.offset)
                    for one in topic.removals
                ],
            )
            first += len(columns.leaders)

    def _encoded(self, columns: Columns) -> pb.PartitionColumns:
        numbers = self._numbers
        number_of = {local: numbers[columns.lists[local]] for local in columns.used_lists()}
        replicas = list(map(number_of.__getitem__, columns.replicas))
        isrs = list(map(number_of.__getitem__, columns.isrs))
        new, numbers.new = numbers.new, []
        return pb.PartitionColumns(
            new_lists=[pb.BrokerIds(ids=one) for one in new],
            replicas=replicas,
            isrs=isrs,
            leaders=columns.leaders,
            leader_epochs=columns.leader_epochs,
            controller_ids=columns.controller_ids,
            controller_epochs=columns.controller_epochs,
            versions=columns.versions,
        )


def _slices(topic: Topic) -> Iterator[Columns]:
    partitions = topic.partitions
    if isinstance(partitions, PackedPartitions):
        yield from partitions.blocks()
        return
    for first in range(0, max(1, len(partitions)), SLICE):
        yield columns_of(partitions[first : first + SLICE])


class ColumnsDecoder:
    """Decodes the topics of one snapshot, in the order in which they were encoded."""

    def __init__(self) -> None:
        self._lists: list[tuple[BrokerId, ...]] = []
        self._packer = Packer(self._lists)

    def partitions(self, encoded: pb.PartitionColumns) -> list[Partition]:
        """Return the partitions in ``encoded``.

        Raises:
            ValueError: the columns do not fit together.
        """
        self._lists += [brokers(one.ids) for one in encoded.new_lists]
        with self._naming_unknown_lists():
            return leaves_of(self._columns(encoded))

    def block(self, encoded: pb.PartitionColumns) -> bytes:
        """Return the partitions in ``encoded`` as a block, without an object for any of them.

        Raises:
            ValueError: the columns do not fit together.
        """
        self._lists += [cast("tuple[BrokerId, ...]", tuple(one.ids)) for one in encoded.new_lists]
        with self._naming_unknown_lists():
            return self._packer.pack(self._columns(encoded))

    @contextmanager
    def _naming_unknown_lists(self) -> Iterator[None]:
        try:
            yield
        except IndexError:
            known = len(self._lists)
            raise ValueError(f"a broker list beyond the {known} given is named") from None

    def _columns(self, encoded: pb.PartitionColumns) -> Columns:
        columns = Columns(
            self._lists,
            encoded.replicas[:],
            encoded.leaders[:],
            encoded.leader_epochs[:],
            encoded.isrs[:],
            encoded.controller_ids[:],
            encoded.controller_epochs[:],
            encoded.versions[:],
        )
        sizes = [len(column) for column in columns[1:]]
        if len({*sizes}) != 1:
            raise ValueError(f"the columns have {sizes} partitions")
        return columns


class TopicLeaves:
    """Takes the partitions of one topic of a snapshot as leaves."""

    def __init__(self, decoder: ColumnsDecoder) -> None:
        self._decoder = decoder
        self._leaves: list[Partition] = []

    @property
    def count(self) -> int:
        return len(self._leaves)

    def add(self, encoded: pb.PartitionColumns) -> None:
        """Take the next partitions, as ``ColumnsDecoder.partitions``."""
        self._leaves += self._decoder.partitions(encoded)

    def finished(self) -> tuple[Partition, ...]:
        return tuple(self._leaves)


class TopicBlocks:
    """Takes the partitions of one topic of a snapshot as blocks."""

    def __init__(self, decoder: ColumnsDecoder) -> None:
        self._decoder = decoder
        self._blocks: list[bytes] = []
        self.count = 0

    def add(self, encoded: pb.PartitionColumns) -> None:
        """Take the next partitions, as ``ColumnsDecoder.block``."""
        self._blocks.append(self._decoder.block(encoded))
        self.count += len(encoded.leaders)

    def finished(self) -> PackedPartitions:
        return PackedPartitions.of_blocks(self._blocks)
