"""The target assignment of a group: which partitions each member is to have (KIP-848).

An assignor makes it in steps, from a copy of what members subscribe to: it takes long where there
are thousands of members and partitions, and the group goes on meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    NOTHING_OWNED,
    Owned,
    Partitions,
)
from quorate.common.types import TopicId

NO_PARTITIONS: Final[Partitions] = {}

MEMBERS_IN_A_STEP: Final = 16
PARTITIONS_IN_A_STEP: Final = 256


class Subscriber(NamedTuple):
    """A member as an assignor sees it. Members with the same topics share one ``topic_ids``.

    ``owned`` is what the member has now, which may not be all of its former target yet.
    """

    member_id: str
    instance_id: str | None
    topic_ids: tuple[TopicId, ...]
    owned: Owned = NOTHING_OWNED


class Assigning(NamedTuple):
    """What an assignor works from: members, the partition counts of their topics, and the target
    assignment that it replaces."""

    subscribers: Sequence[Subscriber]
    partition_counts: Mapping[TopicId, int]
    former: Mapping[str, Partitions]

    @property
    def all_alike(self) -> bool:
        """Whether all members subscribe to the same topics."""
        first = self.subscribers[0].topic_ids
        return all(each.topic_ids is first for each in self.subscribers)


TargetAssignment: TypeAlias = dict[str, Partitions]
"""The partitions of each member, by member id."""

Assignor: TypeAlias = Callable[[Assigning], Steps[TargetAssignment]]
