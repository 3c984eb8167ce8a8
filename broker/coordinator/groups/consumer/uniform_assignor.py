"""The assignor "uniform": all members get equally many partitions, and keep what they have.

Where members subscribe to different topics, a partition goes to the subscriber that has the fewest,
and then moves from one subscriber to another as long as that makes their numbers more equal.
"""

import heapq
from collections.abc import Mapping
from typing import Final

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.consumer_member import Owned, Partitions
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    MEMBERS_IN_A_STEP,
    NO_PARTITIONS,
    PARTITIONS_IN_A_STEP,
    Assigning,
    TargetAssignment,
)
from quorate.common.types import TopicId

UNIFORM: Final = "uniform"

_PASSES_MAX: Final = 10
"""The most passes over all topics in search of a better balance. Each pass ends with topics that
are balanced for themselves, and later passes find little."""

_TopicPartition = tuple[TopicId, int]
_Growing = dict[str, dict[TopicId, set[int]]]
"""An assignment that is being made: member → topic → partitions."""


def assign_uniformly(assigning: Assigning) -> Steps[TargetAssignment]:
    """Assign equally many partitions to all members, and move as few as possible."""
    if not assigning.subscribers:
        return {}
    if assigning.all_alike:
        return (yield from _assign_alike(assigning))
    return (yield from _Balancing(assigning).carry_out())


# All members subscribe to the same topics.


def _assign_alike(assigning: Assigning) -> Steps[TargetAssignment]:
    subscribers = assigning.subscribers
    topic_ids = subscribers[0].topic_ids
    free = yield from _unassigned(assigning, topic_ids)
    counts = {topic_id: assigning.partition_counts[topic_id] for topic_id in topic_ids}
    least, extra = divmod(sum(counts.values()), len(subscribers))
    target: TargetAssignment = {}
    rooms: list[tuple[str, int]] = []
    for place, each in enumerate(subscribers):
        quota = least + (extra > 0)
        former = assigning.former.get(each.member_id, NO_PARTITIONS)
        kept, given_up = _up_to(quota, former, each.owned, counts)
        free += given_up
        room = quota - sum(map(len, kept.values()))
        others_can_take_extra = len(subscribers) - place > extra
        if extra > 0:
            if room and others_can_take_extra:
                room -= 1
            else:
                extra -= 1
        target[each.member_id] = kept
        if room:
            rooms.append((each.member_id, room))
        if not place % MEMBERS_IN_A_STEP:
            yield
    at = 0
    for number, (member_id, room) in enumerate(rooms):
        target[member_id] = _with(target[member_id], free[at : at + room])
        at += room
        if not number % MEMBERS_IN_A_STEP:
            yield
    return target


def _unassigned(
    assigning: Assigning, topic_ids: tuple[TopicId, ...]
) -> Steps[list[_TopicPartition]]:
    """Return the partitions that no present member has by the former target assignment."""
    taken: dict[TopicId, set[int]] = {topic_id: set() for topic_id in topic_ids}
    for number, each in enumerate(assigning.subscribers):
        for topic_id, partitions in assigning.former.get(each.member_id, NO_PARTITIONS).items():
            if topic_id in taken:
                taken[topic_id] |= partitions
        if not number % MEMBERS_IN_A_STEP:
            yield
    free: list[_TopicPartition] = []
    for topic_id in topic_ids:
        own = taken[topic_id]
        count = assigning.partition_counts[topic_id]
        for start in range(0, count, PARTITIONS_IN_A_STEP):
            end = min(count, start + PARTITIONS_IN_A_STEP)
            free += [(topic_id, p) for p in range(start, end) if p not in own]
            yield
    return free


def _up_to(
    quota: int, former: Partitions, owned: Owned, counts: Mapping[TopicId, int]
) -> tuple[Partitions, list[_TopicPartition]]:
    """Return what a member keeps of its former target, and what it gives up to others.

    It keeps what it has rather than what it was to get, so that it does not stop in between.
    ``counts`` has the partitions of each topic that the member subscribes to now.
    """
    kept: dict[TopicId, frozenset[int]] = {}
    given_up: list[_TopicPartition] = []
    for topic_id, partitions in former.items():
        existing = partitions
        count = counts.get(topic_id, 0)
        if count <= max(partitions, default=0):
            existing = frozenset(p for p in partitions if p < count)
        if len(existing) > quota:
            has = owned.get(topic_id, {})
            ordered = [*sorted(existing & has.keys()), *sorted(existing - has.keys())]
            given_up += [(topic_id, p) for p in ordered[quota:]]
            existing = frozenset(ordered[:quota])
        if existing:
            kept[topic_id] = existing
        quota -= len(existing)
    return kept, given_up


def _with(partitions: Partitions, more: list[_TopicPartition]) -> Partitions:
    grown = {topic_id: set(own) for topic_id, own in partitions.items()}
    for topic_id, partition in more:
        grown.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(own) for topic_id, own in grown.items()}


# Members subscribe to different topics.


class _Balancing:
    """An assignment among members with different topics, as it is being made."""

    def __init__(self, assigning: Assigning) -> None:
        self._assigning = assigning
        self._growing: _Growing = {each.member_id: {} for each in assigning.subscribers}
        self._sizes: dict[str, int] = dict.fromkeys(self._growing, 0)
        self._subscribers: dict[TopicId, list[str]] = {}
        self._owners: dict[TopicId, dict[int, str]] = {}

    def carry_out(self) -> Steps[TargetAssignment]:
        yield from self._keep()
        topic_ids = sorted(self._subscribers, key=lambda topic: len(self._subscribers[topic]))
        for topic_id in topic_ids:
            yield from self._assign_rest(topic_id)
        for _ in range(_PASSES_MAX):
            moved = 0
            for topic_id in topic_ids:
                moved += yield from self._balance(topic_id)
            if not moved:
                break
        target: TargetAssignment = {}
        for number, (member_id, topics) in enumerate(self._growing.items()):
            target[member_id] = {topic: frozenset(own) for topic, own in topics.items() if own}
            if not number % MEMBERS_IN_A_STEP:
                yield
        return target

    def _keep(self) -> Steps[None]:
        """Give each member what it had of the topics that it subscribes to."""
        for number, each in enumerate(self._assigning.subscribers):
            former = self._assigning.former.get(each.member_id, NO_PARTITIONS)
            for topic_id in each.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(each.member_id)
                count = self._assigning.partition_counts[topic_id]
                for partition in sorted(former.get(topic_id, ())):
                    if partition < count and partition not in self._owners.get(topic_id, {}):
                        self._give(topic_id, partition, each.member_id)
            if not number % MEMBERS_IN_A_STEP:
                yield

    def _assign_rest(self, topic_id: TopicId) -> Steps[None]:
        """Give each partition without an owner to the subscriber that has the fewest."""
        owned = self._owners.setdefault(topic_id, {})
        fewest = [(self._sizes[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapq.heapify(fewest)
        yield
        for partition in range(self._assigning.partition_counts[topic_id]):
            if partition not in owned:
                member_id = fewest[0][1]
                self._give(topic_id, partition, member_id)
                heapq.heapreplace(fewest, (self._sizes[member_id], member_id))
            if not partition % PARTITIONS_IN_A_STEP:
                yield

    def _balance(self, topic_id: TopicId) -> Steps[int]:
        """Move partitions of one topic from who has most to who has fewest; return how many."""
        moved = 0
        members = self._subscribers[topic_id]
        fewest = [(self._sizes[member_id], member_id) for member_id in members]
        most = [(-self._sizes[each], each) for each in members if self._growing[each].get(topic_id)]
        heapq.heapify(fewest)
        heapq.heapify(most)
        yield
        while most:
            size, giver = heapq.heappop(most)
            if -size != self._sizes[giver]:
                continue  # The entry is old: the member has been given something since.
            taker = self._least(fewest)
            if self._sizes[giver] - self._sizes[taker] < 2:
                break
            partition = max(self._growing[giver][topic_id])
            self._growing[giver][topic_id].remove(partition)
            self._sizes[giver] -= 1
            self._give(topic_id, partition, taker)
            moved += 1
            heapq.heapreplace(fewest, (self._sizes[taker], taker))
            heapq.heappush(fewest, (self._sizes[giver], giver))
            if self._growing[giver][topic_id]:
                heapq.heappush(most, (-self._sizes[giver], giver))
            if not moved % PARTITIONS_IN_A_STEP:
                yield
        return moved

    def _least(self, fewest: list[tuple[int, str]]) -> str:
        """Return the member that has fewest, and leave its entry in the first place."""
        while fewest[0][0] != self._sizes[fewest[0][1]]:
            heapq.heappop(fewest)
        return fewest[0][1]

    def _give(self, topic_id: TopicId, partition: int, member_id: str) -> None:
        self._growing[member_id].setdefault(topic_id, set()).add(partition)
        self._owners.setdefault(topic_id, {})[partition] = member_id
        self._sizes[member_id] += 1
