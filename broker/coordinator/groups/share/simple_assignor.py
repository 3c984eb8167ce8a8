"""The assignor "simple" of share groups (KIP-932): every member has work, and every partition a
member.

Topics with the same subscribers are shared out together. Where there are more partitions than
members, each member gets about as many partitions; where there are fewer, each partition gets about
as many members. What members have they keep, as far as that is balanced.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    PARTITIONS_IN_A_STEP,
    Assigning,
    TargetAssignment,
)
from quorate.common.types import TopicId

SIMPLE: Final = "simple"

Item = TypeVar("Item", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)

_Partition = tuple[TopicId, int]


def assign_simply(
    assigning: Assigning, assignable: Mapping[TopicId, frozenset[int]]
) -> Steps[TargetAssignment]:
    """Assign the ``assignable`` partitions of topics to the members that subscribe to them."""
    subscribers: dict[TopicId, list[str]] = {}
    for each in sorted(assigning.subscribers, key=lambda one: one.member_id):
        for topic_id in each.topic_ids:
            subscribers.setdefault(topic_id, []).append(each.member_id)
        yield
    together: dict[tuple[str, ...], list[_Partition]] = {}
    for topic_id, member_ids in sorted(subscribers.items()):
        partitions = sorted(assignable.get(topic_id, ()))
        together.setdefault(tuple(member_ids), []).extend((topic_id, p) for p in partitions)
    found: dict[str, dict[TopicId, set[int]]] = {
        each.member_id: {} for each in assigning.subscribers
    }
    for members, shared in together.items():
        pairs = yield from _share_out(members, shared, assigning)
        for member_id, (topic_id, partition) in pairs:
            found[member_id].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(own) for topic_id, own in owned.items()}
        for member_id, owned in found.items()
    }


def _share_out(
    member_ids: Sequence[str], partitions: Sequence[_Partition], assigning: Assigning
) -> Steps[list[tuple[str, _Partition]]]:
    if not partitions:
        return []
    wanted = frozenset(partitions)
    former_of: dict[str, _Partition] = {}
    owner_of: dict[_Partition, str] = {}
    for member_id in member_ids:
        for topic_id, own in assigning.former.get(member_id, {}).items():
            for partition in sorted(own):
                if (topic_id, partition) in wanted:
                    former_of.setdefault(member_id, (topic_id, partition))
                    owner_of.setdefault((topic_id, partition), member_id)
        yield
    if len(partitions) >= len(member_ids):
        placed = yield from _spread(partitions, member_ids, owner_of)
        return [(member_id, partition) for partition, member_id in placed]
    return (yield from _spread(member_ids, partitions, former_of))


def _spread(
    items: Sequence[Item], places: Sequence[Place], former: Mapping[Item, Place]
) -> Steps[list[tuple[Item, Place]]]:
    """Give each item a place, so that no place has two items more than another."""
    least, extra = divmod(len(items), len(places))
    counts: Counter[Place] = Counter()
    placed: list[tuple[Item, Place]] = []
    homeless: list[Item] = []
    for number, item in enumerate(items, start=1):
        place = former.get(item)
        if place is not None and counts[place] == least and extra > 0:
            extra -= 1
        elif place is None or counts[place] >= least:
            homeless.append(item)
            continue
        counts[place] += 1
        placed.append((item, place))
        if not number % PARTITIONS_IN_A_STEP:
            yield
    rest = iter(homeless)
    for place in places:
        room = least - counts[place]
        if room >= 0 and extra > 0:
            room, extra = room + 1, extra - 1
        placed += ((item, place) for _, item in zip(range(room), rest, strict=False))
        yield
    return placed
