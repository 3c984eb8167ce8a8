"""The assignor "range": neighbouring partitions of each topic go to the same member.

Members with the same number get the same partitions of topics that have equally many, so that what
belongs together by key is consumed together.
"""

from collections import Counter
from typing import Final

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    MEMBERS_IN_A_STEP,
    Assigning,
    Subscriber,
    TargetAssignment,
)
from quorate.common.types import TopicId

RANGE: Final = "range"


class _Ranges:
    """Divides one topic among its subscribers, which come in order."""

    def __init__(self, partition_count: int, member_count: int) -> None:
        self._least, self._extra = divmod(partition_count, member_count)
        self._next = 0

    def next(self) -> frozenset[int]:
        """Return the partitions of the next member."""
        start, size = self._next, self._least + (self._extra > 0)
        self._next, self._extra = start + size, self._extra - 1
        return frozenset(range(start, start + size))


def assign_ranges(assigning: Assigning) -> Steps[TargetAssignment]:
    """Assign to each member a range of each of its topics, static members first (KIP-345)."""
    subscribers = sorted(assigning.subscribers, key=_order)
    counts: Counter[TopicId] = Counter()
    for number, each in enumerate(subscribers, start=1):
        counts.update(each.topic_ids)
        if not number % MEMBERS_IN_A_STEP:
            yield
    ranges = {
        topic_id: _Ranges(assigning.partition_counts[topic_id], count)
        for topic_id, count in counts.items()
    }
    target: TargetAssignment = {}
    for number, each in enumerate(subscribers, start=1):
        own = {topic_id: ranges[topic_id].next() for topic_id in each.topic_ids}
        target[each.member_id] = {topic_id: found for topic_id, found in own.items() if found}
        if not number % MEMBERS_IN_A_STEP:
            yield
    return target


def _order(subscriber: Subscriber) -> tuple[bool, str]:
    instance_id = subscriber.instance_id
    return instance_id is None, instance_id or subscriber.member_id
