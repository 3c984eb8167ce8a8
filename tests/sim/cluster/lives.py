"""A partition that is added again is another one, under the same topic id and number (C14).

What tells them apart is the leader epoch: it goes on above that of the removed one.
"""

from typing import NamedTuple

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.types import TopicIdPartition
from tests.sim.cluster.transaction_truth import Outcomes
from tests.sim.cluster.truth import Truth


class Life(NamedTuple):
    """One of the partitions that had this id and number."""

    tip: TopicIdPartition
    first_epoch: int


class Lives:
    """The leader epochs at which each life of a partition begins, as the metadata log says."""

    def __init__(self) -> None:
        self._floors: dict[TopicIdPartition, list[int]] = {}

    def ended(self, tip: TopicIdPartition, floor: int) -> None:
        """The partition was removed: the next one's leader epochs begin at ``floor``."""
        self._floors.setdefault(tip, []).append(floor)

    def of(self, tip: TopicIdPartition, epoch: int) -> Life:
        """The one that had this leader epoch."""
        floors = self._floors.get(tip, ())
        return Life(tip, max((floor for floor in floors if floor <= epoch), default=0))


class Truths:
    """The committed batches of every life of every partition."""

    def __init__(self) -> None:
        self.lives = Lives()
        self.outcomes = Outcomes()
        self._truths: dict[Life, Truth] = {}

    def of(self, tip: TopicIdPartition, epoch: int, name: str = "") -> Truth:
        """Return the truth about the partition that had this leader epoch."""
        life = self.lives.of(tip, epoch)
        found = self._truths.get(life)
        if found is None:
            found = self._truths[life] = Truth(
                tip, f"{name}/{tip.topic_id.hex()[:4]}", self.outcomes
            )
        return found

    def of_replica(self, hosted: HostedPartition) -> Truth:
        """Return the truth about the partition that this is a replica of."""
        return self.of(hosted.tip, epoch_of(hosted), str(hosted.tp))

    def newest_life(self, tip: TopicIdPartition) -> int:
        """First leader epoch of the newest partition of that id and number that had records."""
        return max((one.tip == tip and one.first_epoch for one in self._truths), default=0)


def epoch_of(hosted: HostedPartition) -> int:
    """The leader epoch that a replica is in, or was in when its process ended."""
    if hosted.replica.leader_epoch >= 0:
        return hosted.replica.leader_epoch
    entries = hosted.log.leader_epochs.entries
    return int(entries[-1][0]) if entries else 0
