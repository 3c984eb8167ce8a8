"""Makes plans: topics spread anew over some brokers, or one broker emptied."""

from collections import Counter
from collections.abc import Mapping

from broker.controller.managers.placement import PlacementStart, place
from metadata_log.types import BrokerId
from quorate.client.results import PartitionName
from quorate.reassignment.plan import Assignment, PlanError, Replicas, by_name

Racks = Mapping[int, str]
"""Rack by live broker, "" for none."""


def spread(current: Assignment, brokers: Racks, start: PlacementStart) -> Assignment:
    """Every topic of ``current`` placed anew over ``brokers``, as if it was created now.

    Raises:
        PlanError: a topic has more replicas than there are brokers.
    """
    racks = {BrokerId(broker_id): rack for broker_id, rack in brokers.items()}
    proposed: dict[PartitionName, Replicas] = {}
    for topic in sorted({name.topic for name in current}):
        names = sorted((name for name in current if name.topic == topic), key=by_name)
        factor = len(current[names[0]])
        if factor > len(racks):
            raise PlanError(
                f"topic {topic!r} has {factor} replicas, and {len(racks)} brokers are named: "
                "name more"
            )
        placed = place(racks, len(names), factor, start)
        proposed.update((name, tuple(placed[row])) for row, name in enumerate(names))
    return proposed


def emptied(current: Assignment, leaving: int, brokers: Racks) -> Assignment:
    """Where the partitions of ``leaving`` go: each keeps its other replicas, in their order.

    The new replica comes in the old one's place, where possible in a rack that the partition
    does not use yet, and there on the broker that has least.

    Raises:
        PlanError: a partition has its other replicas on all the brokers there are.
    """
    staying = {broker_id: rack for broker_id, rack in brokers.items() if broker_id != leaving}
    replicas = Counter(one for assigned in current.values() for one in assigned)
    preferred = Counter(assigned[0] for assigned in current.values() if assigned)
    plan: dict[PartitionName, Replicas] = {}
    for name in sorted(current, key=by_name):
        assigned = current[name]
        if leaving not in assigned:
            continue
        position = assigned.index(leaving)
        others = [one for one in assigned if one != leaving]
        candidates = sorted(staying.keys() - set(others))
        if not candidates:
            raise _too_few(name, current, leaving, staying)
        used_racks = {staying[one] for one in others if staying.get(one)}
        costs = {
            one: (staying[one] in used_racks, replicas[one], preferred[one] * (position == 0))
            for one in candidates
        }
        chosen = min(candidates, key=costs.__getitem__)
        replicas[chosen] += 1
        preferred[chosen] += position == 0
        plan[name] = (*assigned[:position], chosen, *assigned[position + 1 :])
    return plan


def _too_few(name: PartitionName, current: Assignment, leaving: int, staying: Racks) -> PlanError:
    factor = len(current[name])
    stuck = sorted({one.topic for one, replicas in current.items() if len(replicas) > len(staying)})
    return PlanError(
        f"broker {leaving} cannot be emptied: {len(staying)} other brokers {sorted(staying)} are "
        f"live, and topics {stuck or [name.topic]} have {factor} replicas or more: start another "
        "broker, or give these topics fewer replicas"
    )
