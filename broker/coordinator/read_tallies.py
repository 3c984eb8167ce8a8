"""Reads that many tasks share: their offsets count once every task has read its part.

A range may be cut among tasks, and tasks end in any order: the end of a later piece, committed
alone, would pass over the earlier ones. And of a read that fails half-way nothing is to be shown.

What is known of a read is in memory alone. A coordinator that takes over begins to count anew, so
that the read under way may go uncommitted: no offset is ever ahead of what was read.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.errors import KafkaError
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

READS_MAX: Final = 1_000
"""Reads that are remembered; the one that was not heard of for the longest is forgotten."""

PARTS_MAX: Final = 1_000_000
"""Of one read."""


class ReadId(NamedTuple):
    """``read_id``: drawn by who has planned the read."""

    group_id: str
    read_id: bytes


class _Tally:
    def __init__(self, count: int) -> None:
        self.count = count
        self.reported: set[int] = set()
        self.ends: dict[TopicPartition, int] = {}


class ReadTallies:
    """What has been read of each read."""

    def __init__(self, reads_max: int = READS_MAX) -> None:
        self._reads_max = reads_max
        self._tallies: OrderedDict[ReadId, _Tally] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tallies)

    def report(
        self, read: ReadId, number: int, count: int, ends: Mapping[TopicPartition, int]
    ) -> int:
        """Part ``number`` of ``count`` has been read up to ``ends``; how many parts are missing.

        A part may be reported again: tasks are repeated.

        Raises:
            KafkaError: INVALID_REQUEST.
        """
        if not 0 <= number < count <= PARTS_MAX:
            raise _invalid(f"part {number} of {count}: there are 1 to {PARTS_MAX}, from 0 on")
        tally = self._tallies.setdefault(read, _Tally(count))
        if tally.count != count:
            raise _invalid(f"read {read.read_id.hex()} has {tally.count} parts, not {count}")
        self._tallies.move_to_end(read)
        while len(self._tallies) > self._reads_max:
            self._tallies.popitem(last=False)
        tally.reported.add(number)
        for tp, end in ends.items():
            tally.ends[tp] = max(end, tally.ends.get(tp, end))
        return count - len(tally.reported)

    def ends(self, read: ReadId) -> Mapping[TopicPartition, int]:
        """How far all parts together have come."""
        return self._tallies[read].ends

    def forget(self, read: ReadId) -> None:
        """It is committed, or never will be."""
        self._tallies.pop(read, None)


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)
