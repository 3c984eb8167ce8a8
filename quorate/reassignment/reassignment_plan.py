"""Reassignment plans: the target replicas of each partition, in the JSON of Kafka's tool.

Plans are read from a file or proposed here: topics spread over some brokers, or one broker emptied.

``{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}``
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from quorate.broker.controller.managers.placement import PlacementStart, place
from quorate.client.errors import QuorateError
from quorate.client.results import PartitionName, TopicInfo
from quorate.common.types import BrokerId

Replicas = tuple[int, ...]

Assignment = Mapping[PartitionName, Replicas]
"""The replicas by partition, the preferred one first."""

VERSION: Final = 1

PLAN_FORM: Final = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
TOPICS_FORM: Final = '{"version":1,"topics":[{"topic":"foo"}]}'


class PlanError(QuorateError):
    """A plan cannot be read, proposed or carried out. The message says what to change."""


def read_plan(path: Path) -> Assignment:
    """Read a plan from a file. ``log_dirs``, which a plan for Kafka may have, must be "any".

    Raises:
        PlanError: the file holds no plan, or names a partition twice.
    """
    document = _read(path, PLAN_FORM)
    plan: dict[PartitionName, Replicas] = {}
    try:
        for item in document["partitions"]:
            name = PartitionName(topic=str(item["topic"]), partition=int(item["partition"]))
            if name in plan:
                raise PlanError(f"{path} names {text_of(name)} more than once")
            _check_log_dirs(path, name, item)
            plan[name] = tuple(int(one) for one in item["replicas"])
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(path, PLAN_FORM, error) from error
    if not plan:
        raise PlanError(f"{path} names no partition")
    return plan


def _check_log_dirs(path: Path, name: PartitionName, item: Mapping[str, Any]) -> None:
    wanted = set(item.get("log_dirs", ())) - {"any"}
    if wanted:
        raise PlanError(
            f"{path} asks for log directories {sorted(wanted)} of {text_of(name)}: a broker has "
            'one, so leave log_dirs out or say "any"'
        )


def read_topics(path: Path) -> list[str]:
    """Read the topic names from a topics-to-move file.

    Raises:
        PlanError: the file has another form, or names a topic twice.
    """
    document = _read(path, TOPICS_FORM)
    try:
        names = [str(item["topic"]) for item in document["topics"]]
    except (KeyError, TypeError) as error:
        raise _malformed(path, TOPICS_FORM, error) from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(f"{path} names topics {twice} more than once")
    if not names:
        raise PlanError(f"{path} names no topic")
    return names


def _read(path: Path, form: str) -> Any:  # noqa: ANN401 - JSON
    try:
        document = json.loads(path.read_text())
        version = document.get("version", VERSION)
    except (OSError, ValueError, AttributeError) as error:
        raise _malformed(path, form, error) from error
    if version != VERSION:
        raise PlanError(f"{path} is of version {version}: version {VERSION} is understood")
    return document


def _malformed(path: Path, form: str, error: Exception) -> PlanError:
    return PlanError(f"{path} does not hold {form}: {error!r}")


def plan_text(assignment: Assignment) -> str:
    """Return the plan as one line of JSON, sorted, as Kafka's tool prints it."""
    partitions = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for name, replicas in sorted(assignment.items(), key=lambda item: by_name(item[0]))
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def assignment_of(topics: Iterable[TopicInfo]) -> Assignment:
    """Return the current replicas of all partitions of ``topics``."""
    return {
        PartitionName(topic=topic.name, partition=partition.partition): partition.replicas
        for topic in topics
        for partition in topic.partitions
    }


def by_name(name: PartitionName) -> tuple[str, int]:
    """Return the key that partitions are sorted by."""
    return name.topic, name.partition


def text_of(name: PartitionName) -> str:
    """Return the partition as text, such as ``orders-0``."""
    return f"{name.topic}-{name.partition}"


def texts_of(names: Iterable[PartitionName]) -> str:
    """Return the partitions as sorted text, such as ``orders-0,orders-1``."""
    return ",".join(text_of(name) for name in sorted(names, key=by_name))


Racks = Mapping[int, str]
"""The rack of each live broker; "" if it has none."""


def plan_spread(current: Assignment, brokers: Racks, start: PlacementStart) -> Assignment:
    """Propose new replicas for every topic of ``current``, as if it was created on ``brokers`` now.

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


def plan_emptying(current: Assignment, leaving: int, brokers: Racks) -> Assignment:
    """Propose new replicas for every partition that the broker ``leaving`` holds.

    Each partition keeps its other replicas in their order. The new replica takes the place of the
    old one. It is put, where possible, into a rack that the partition does not use yet, and there
    on the broker that has the fewest replicas.

    Raises:
        PlanError: the other replicas of a partition are on all other brokers already.
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
