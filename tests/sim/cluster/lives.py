"""A partition that is added again is another one, under the same topic id and number (C14).

What tells them apart is the leader epoch: it goes on above that of the removed one.
"""

from typing import NamedTuple

from metadata_log.types import TopicIdPartition


class Life(NamedTuple):
    """One of the partitions that had this id and number."""

    tip: TopicIdPartition
    first_epoch: int


class Lives:
    """Where each of them begins, as the metadata log says."""

    def __init__(self) -> None:
        self._floors: dict[TopicIdPartition, list[int]] = {}

    def ended(self, tip: TopicIdPartition, floor: int) -> None:
        """The partition was removed: the next one's leader epochs begin at ``floor``."""
        self._floors.setdefault(tip, []).append(floor)

    def of(self, tip: TopicIdPartition, epoch: int) -> Life:
        """The one that had this leader epoch."""
        floors = self._floors.get(tip, ())
        return Life(tip, max((floor for floor in floors if floor <= epoch), default=0))
