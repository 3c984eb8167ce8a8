"""The partitions of a snapshot in packed columns: about 11 bytes each.

200,000 partitions are normal, and encoding or decoding them must not take a second: whole columns
go through C code. A cluster has few distinct replica lists. Each is written once, with the first
partition that has it, and a partition holds the numbers of its lists.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from quorate.common.types import BrokerId
from quorate.metadata_log.codec import brokers
from quorate.metadata_log.partitions import Partition, Topic
from quorate_proto.v1 import metadata_pb2 as pb

SLICE: Final = 2_000
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
        for first in range(0, max(1, len(topic.partitions)), SLICE):
            yield pb.TopicState(
                name=topic.name,
                topic_id=topic.topic_id,
                version=topic.version,
                first_partition=first,
                partitions=self._columns(topic.partitions[first : first + SLICE]),
                leader_epoch_floor=topic.leader_epoch_floor,
                removals=[
                    pb.PastRemovalState(first_partition=one.first_partition, offset=one.offset)
                    for one in topic.removals
                ],
            )

    def _columns(self, partitions: Sequence[Partition]) -> pb.PartitionColumns:
        numbers = self._numbers
        replicas = [numbers[one.replicas] for one in partitions]
        isrs = [numbers[one.isr] for one in partitions]
        new, numbers.new = numbers.new, []
        return pb.PartitionColumns(
            new_lists=[pb.BrokerIds(ids=one) for one in new],
            replicas=replicas,
            isrs=isrs,
            leaders=[one.leader for one in partitions],
            leader_epochs=[one.leader_epoch for one in partitions],
            controller_ids=[one.controller_id for one in partitions],
            controller_epochs=[one.controller_epoch for one in partitions],
            versions=[one.version for one in partitions],
        )


class ColumnsDecoder:
    """Decodes the topics of one snapshot, in the order in which they were encoded."""

    def __init__(self) -> None:
        self._lists: list[tuple[BrokerId, ...]] = []

    def partitions(self, columns: pb.PartitionColumns) -> list[Partition]:
        """Return the partitions in ``columns``.

        Raises:
            ValueError: the columns do not fit together.
        """
        self._lists += [brokers(one.ids) for one in columns.new_lists]
        lists = self._lists
        try:
            replicas = [lists[number] for number in columns.replicas]
            isrs = [lists[number] for number in columns.isrs]
        except IndexError:
            raise ValueError(f"a broker list beyond the {len(lists)} given is named") from None
        fields: tuple[Sequence[object], ...] = (
            replicas,
            columns.leaders[:],
            columns.leader_epochs[:],
            isrs,
            columns.controller_ids[:],
            columns.controller_epochs[:],
            columns.versions[:],
        )
        if len({len(column) for column in fields}) != 1:
            raise ValueError(f"the columns have {[len(column) for column in fields]} partitions")
        return list(map(Partition, *fields))
