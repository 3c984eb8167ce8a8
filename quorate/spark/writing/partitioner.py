"""Chooses the partition of every row, and knows the topics and partitions that are written to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import RowError
from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.writing import writing_kernels as kernels
from quorate.spark.writing.row_columns import NO_INT32, Int64Array, Rows


class TargetTopic(NamedTuple):
    """A topic that is written to, as the cluster describes it."""

    topic_id: bytes
    partitions: int
    bytes_max: int
    """The largest batch that the topic takes; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A partition that is written to. Its slot is its position among all of a writer's targets."""

    partition: TopicPartition
    topic_id: bytes
    bytes_max: int
    """The largest batch that the topic takes; 0 if it is not known."""


class RowsOfPartitionSlot(NamedTuple):
    """The rows ``order[begin:end]``, which go to the target of one slot."""

    slot: int
    order: Int64Array
    begin: int
    end: int


class Partitioner:
    """Chooses the partition of every row.

    A row goes to the partition that its column names, else to the one that its key chooses as in
    Kafka's producers, else to a sticky one. The partitions of all topics met so far are in
    ``targets``.
    """

    def __init__(
        self, describe: Callable[[str], TargetTopic], topic: str | None, first_partition: int
    ) -> None:
        """
        Args:
            describe: describes a topic; is called once for each.
            topic: the topic of all rows; None if the column ``topic`` names it.
            first_partition: where rows without keys begin, so that tasks that run side by side do
                not all begin with partition 0.
        """
        self.targets: list[TargetPartition] = []
        self._describe = describe
        self._topic = topic
        self._first_partition = first_partition
        self._codes: dict[str, int] = {}
        self._first_slot = np.zeros(0, np.int64)
        self._partitions_of = np.zeros(0, np.int64)
        self._sticky = np.zeros(0, np.int64)
        self._sticky_bytes = np.zeros(0, np.int64)

    def split(self, rows: Rows) -> Iterator[RowsOfPartitionSlot]:
        """Yield the rows by slot. The rows of one slot keep their order.

        Raises:
            RowError: the partition of a row does not exist; names topic and partition.
        """
        if rows.topics is None:
            self._code(self._topic or "")
            topic_of = NO_INT32
        else:
            codes = np.array([self._code(topic) for topic in rows.topics], np.int32)
            topic_of = codes[rows.topic_of]
        slots = np.empty(rows.count, np.int32)
        failed = load_kernel(kernels.CHOOSE_SLOTS)(
            rows.count, rows.present,
            topic_of.ctypes.data, self._first_slot.ctypes.data, self._partitions_of.ctypes.data,
            rows.partition.ctypes.data, rows.partition_valid.ctypes.data,
            rows.key.ends.ctypes.data, rows.key.data.ctypes.data, rows.key.valid.ctypes.data,
            rows.value.ends.ctypes.data,
            self._sticky.ctypes.data, self._sticky_bytes.ctypes.data, slots.ctypes.data,
        )  # fmt: skip
        if failed != kernels.ALL_CHOSEN:
            code = int(topic_of[failed]) if len(topic_of) else 0
            topic, count = list(self._codes)[code], int(self._partitions_of[code])
            raise RowError(
                f"a row names partition {int(rows.partition[failed])} of topic {topic}, which has "
                f"partitions 0 to {count - 1}: correct the column 'partition', or leave it null "
                "to have the key decide"
            )
        ends = np.zeros(len(self.targets) + 2, np.int64)
        order = np.empty(rows.count, np.int64)
        load_kernel(kernels.GROUP_BY_SLOT)(
            slots.ctypes.data, rows.count, ends.ctypes.data, len(ends), order.ctypes.data
        )
        for slot in np.flatnonzero(np.diff(ends[:-1])).tolist():
            yield RowsOfPartitionSlot(slot, order, int(ends[slot]), int(ends[slot + 1]))

    def _code(self, topic: str) -> int:
        """Return the position of a topic; a new one gets slots for all its partitions."""
        code = self._codes.get(topic)
        if code is None:
            found = self._describe(topic)
            code = self._codes[topic] = len(self._codes)
            self._first_slot = np.append(self._first_slot, len(self.targets))
            self._partitions_of = np.append(self._partitions_of, found.partitions)
            self._sticky = np.append(self._sticky, self._first_partition % found.partitions)
            self._sticky_bytes = np.append(self._sticky_bytes, 0)
            self.targets += [
                TargetPartition(TopicPartition(topic, number), found.topic_id, found.bytes_max)
                for number in range(found.partitions)
            ]
        return code
