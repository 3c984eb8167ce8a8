"""Where rows go: by their own partition, by key as Kafka's producers do it, else by turns."""

from collections.abc import Callable, Iterator

import numpy as np

from quorate.spark.errors import RowError
from quorate.spark.kernels.store import load
from quorate.spark.ranges import TopicPartition
from quorate.spark.writing import kernels
from quorate.spark.writing.columns import NO_INT32, Rows
from quorate.spark.writing.targets import RowsOfSlot, Target, TopicTargets


class Partitioner:
    """Slots for the partitions of every topic met so far, kept in ``targets``.

    ``describe`` is asked once for each topic; ``first_partition`` is where rows without keys
    begin, so that tasks that run side by side do not all begin with partition 0.
    """

    def __init__(
        self, describe: Callable[[str], TopicTargets], topic: str | None, first_partition: int
    ) -> None:
        """``topic``: the one that all rows go to; None: the rows say."""
        self.targets: list[Target] = []
        self._describe = describe
        self._topic = topic
        self._first_partition = first_partition
        self._codes: dict[str, int] = {}
        self._first_slot = np.zeros(0, np.int64)
        self._partitions_of = np.zeros(0, np.int64)
        self._sticky = np.zeros(0, np.int64)
        self._sticky_bytes = np.zeros(0, np.int64)

    def split(self, rows: Rows) -> Iterator[RowsOfSlot]:
        """The rows by slot; those of one slot are in their order.

        Raises:
            RowError: a row's partition does not exist; names topic and partition.
        """
        if rows.topics is None:
            self._code(self._topic or "")
            topic_of = NO_INT32
        else:
            codes = np.array([self._code(topic) for topic in rows.topics], np.int32)
            topic_of = codes[rows.topic_of]
        slots = np.empty(rows.count, np.int32)
        failed = load(kernels.CHOOSE_SLOTS)(
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
        load(kernels.GROUP_BY_SLOT)(
            slots.ctypes.data, rows.count, ends.ctypes.data, len(ends), order.ctypes.data
        )
        for slot in np.flatnonzero(np.diff(ends[:-1])).tolist():
            yield RowsOfSlot(slot, order, int(ends[slot]), int(ends[slot + 1]))

    def _code(self, topic: str) -> int:
        """The topic's position; a new one gets slots for all its partitions."""
        code = self._codes.get(topic)
        if code is None:
            found = self._describe(topic)
            code = self._codes[topic] = len(self._codes)
            self._first_slot = np.append(self._first_slot, len(self.targets))
            self._partitions_of = np.append(self._partitions_of, found.partitions)
            self._sticky = np.append(self._sticky, self._first_partition % found.partitions)
            self._sticky_bytes = np.append(self._sticky_bytes, 0)
            self.targets += [
                Target(TopicPartition(topic, number), found.topic_id, found.bytes_max)
                for number in range(found.partitions)
            ]
        return code
