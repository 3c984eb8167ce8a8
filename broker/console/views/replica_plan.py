"""Plans that move the replicas of a topic, as text with a line per partition. Pure.

``0: 2,3,1`` gives partition 0 the replicas 2, 3 and 1. The first is the preferred leader.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from quorate.broker.controller.managers.placement import PlacementStart, place, start_of
from quorate.common.types import BrokerId
from quorate.metadata_log.partitions import Topic

Replicas: TypeAlias = tuple[BrokerId, ...]
Plan: TypeAlias = Mapping[int, Replicas]
"""The replicas by partition, the preferred leader first."""

MOVES_MAX: Final = 5_000
"""The most partitions of one plan. A larger topic is moved in several."""

_LINE: Final = re.compile(r"(?P<partition>[0-9]{1,9})\s*:\s*(?P<replicas>[0-9]{1,9}(,[0-9]{1,9})*)")
_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,9})(\s*-\s*(?P<last>[0-9]{1,9}))?")


class BadPlan(ValueError):
    """A plan cannot be made or read. The message is for the person."""


def proposed_plan(
    topic: Topic, racks: Mapping[BrokerId, str], factor: int, chosen: Collection[int]
) -> Plan:
    """Return what a topic that is created on these brokers would have, as far as it differs.

    A topic that is spread over exactly these brokers already stays as it is.

    Args:
        topic: the topic as it is.
        racks: the rack of each broker that may be used, "" for none.
        factor: the number of replicas of each partition.
        chosen: the partitions that may be moved.

    Raises:
        BadPlan: there are fewer brokers than replicas, or too many partitions would move.
    """
    if not 1 <= factor <= len(racks):
        raise BadPlan(f"{factor} replicas need {factor} brokers, and {len(racks)} are chosen")
    first = topic.partitions[0].replicas
    start = start_of(racks, first) or PlacementStart(*topic.topic_id[:2])
    placed = place(racks, topic.partition_count, factor, start)
    plan = {one: placed[one] for one in chosen if placed[one] != topic.partitions[one].replicas}
    return _bounded(plan)


def plan_text(plan: Plan) -> str:
    """Return a plan with a line per partition."""
    return "\n".join(f"{one}: {','.join(map(str, replicas))}" for one, replicas in plan.items())


def read_plan(text: str) -> Plan:
    """Return the plan that a text has.

    Raises:
        BadPlan: a line is none of a plan, a partition is named twice, or there are too many or no
            lines.
    """
    plan: dict[int, Replicas] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        found = _LINE.fullmatch(",".join(map(str.strip, line.split(","))))
        if found is None:
            raise BadPlan(f"{line[:80]!r}: a line must be like 0: 2,3,1")
        partition = int(found["partition"])
        if partition in plan:
            raise BadPlan(f"partition {partition} is named more than once")
        plan[partition] = tuple(BrokerId(int(one)) for one in found["replicas"].split(","))
    if not plan:
        raise BadPlan("the plan names no partition")
    return _bounded(plan)


def _bounded(plan: dict[int, Replicas]) -> Plan:
    if len(plan) > MOVES_MAX:
        raise BadPlan(f"{len(plan)} partitions would move at once: choose {MOVES_MAX} at most")
    return plan


def chosen_partitions(text: str, count: int) -> Collection[int]:
    """Return the partitions that ``0-9, 12`` names, all of them if it is empty.

    Raises:
        BadPlan: it names something else, or a partition that does not exist.
    """
    if not text.strip():
        return range(count)
    is_chosen = bytearray(count)
    for item in map(str.strip, text.split(",")):
        found = _RANGE.fullmatch(item)
        if found is None:
            raise BadPlan(f"{item!r} is no partition: give numbers and ranges, such as 0-9, 12")
        first, last = int(found["first"]), int(found["last"] or found["first"])
        if not first <= last < count:
            raise BadPlan(f"{item}: the partitions are 0 to {count - 1}")
        is_chosen[first : last + 1] = b"\x01" * (last + 1 - first)
    return [one for one in range(count) if is_chosen[one]]


def new_copies(topic: Topic, plan: Plan) -> int:
    """Return how many replicas a plan copies to a broker that has none of that partition."""
    return sum(
        len(set(replicas).difference(topic.partitions[one].replicas))
        for one, replicas in plan.items()
    )


def by_broker(wanted: Iterable[tuple[BrokerId, int]]) -> dict[BrokerId, list[int]]:
    """Return partitions by the broker whose replica is meant."""
    found: dict[BrokerId, list[int]] = {}
    for broker, partition in wanted:
        found.setdefault(broker, []).append(partition)
    return found
