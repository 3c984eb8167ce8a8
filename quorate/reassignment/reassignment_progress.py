"""Starts reassignments and reports their progress, partition by partition, as Kafka's tool does."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.results import PartitionName, PartitionResult
from quorate.reassignment.reassignment_plan import (
    Assignment,
    PlanError,
    Replicas,
    assignment_of,
    text_of,
)

POLL_INTERVAL_S: Final = 0.25

SETTLE_S: Final = 3.0
"""The time for which brokers may contradict one another, in seconds. The controller knows that a
reassignment has ended before every broker does."""

PARTITIONS_PER_REQUEST: Final = 1_000


class ReassignmentState(StrEnum):
    """The state of one partition of a plan."""

    COMPLETE = "completed"
    MOVING = "in progress"
    ELSEWHERE = "elsewhere"
    """No reassignment is in progress, and the replicas differ from the plan."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The state of one partition of a plan, with its target replicas and its current ones."""

    name: PartitionName
    target: Replicas
    replicas: Replicas
    """The current replicas; empty if the partition does not exist."""
    state: ReassignmentState

    @property
    def text(self) -> str:
        """Return one line of text, in the words of Kafka's tool."""
        name = text_of(self.name)
        match self.state:
            case ReassignmentState.COMPLETE:
                return f"Reassignment of partition {name} is completed."
            case ReassignmentState.MOVING:
                return f"Reassignment of partition {name} is still in progress."
            case ReassignmentState.MISSING:
                return f"There is no partition {name}."
            case ReassignmentState.ELSEWHERE:
                has, wanted = (
                    ",".join(map(str, replicas)) for replicas in (self.replicas, self.target)
                )
                return (
                    f"There is no active reassignment of partition {name}, but replica set is "
                    f"{has} rather than {wanted}."
                )


def start_reassignments(
    admin: AdminClient, targets: Mapping[PartitionName, Replicas | None]
) -> list[PartitionResult]:
    """Ask the controller to start a reassignment for every partition, or to cancel it.

    Args:
        admin: the client of the cluster.
        targets: the target replicas by partition; None cancels the reassignment.

    Returns:
        The results, in the order of ``targets``.
    """
    names = list(targets)
    results: list[PartitionResult] = []
    for start in range(0, len(names), PARTITIONS_PER_REQUEST):
        piece = {name: targets[name] for name in names[start : start + PARTITIONS_PER_REQUEST]}
        results += admin.alter_partition_reassignments(piece)
    return results


def current_assignment(admin: AdminClient, topics: Sequence[str]) -> Assignment:
    """Return the current replicas of all partitions of ``topics`` that exist."""
    wanted = set(topics)
    return assignment_of(topic for topic in admin.describe_topics() if topic.name in wanted)


def reassignment_states(admin: AdminClient, plan: Assignment) -> list[PartitionState]:
    """Return the states of the partitions of a plan.

    Waits up to `SETTLE_S` while a partition is neither complete nor moving, because the brokers may
    contradict one another for a moment.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = _states(admin, plan)
        settled = all(
            one.state in (ReassignmentState.COMPLETE, ReassignmentState.MOVING) for one in found
        )
        if settled or time.monotonic() > deadline:
            return found
        time.sleep(POLL_INTERVAL_S)


def _states(admin: AdminClient, plan: Assignment) -> list[PartitionState]:
    moving = {
        PartitionName(topic=one.topic, partition=one.partition)
        for one in admin.list_partition_reassignments()
    }
    current = current_assignment(admin, [name.topic for name in plan])
    return [
        PartitionState(
            name=name,
            target=target,
            replicas=current.get(name, ()),
            state=_state(name in moving, current.get(name), target),
        )
        for name, target in plan.items()
    ]


def _state(is_moving: bool, replicas: Replicas | None, target: Replicas) -> ReassignmentState:
    if replicas is None:
        return ReassignmentState.MISSING
    if is_moving:
        return ReassignmentState.MOVING
    return ReassignmentState.COMPLETE if replicas == target else ReassignmentState.ELSEWHERE


def until_done(
    admin: AdminClient,
    plan: Assignment,
    timeout_ms: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """Yield the number of partitions of the plan that still move, whenever it changes, down to 0.

    Raises:
        PlanError: some partitions still move after ``timeout_ms``. Their reassignments go on.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    yielded = -1
    while True:
        left = sum(
            PartitionName(topic=one.topic, partition=one.partition) in plan
            for one in admin.list_partition_reassignments()
        )
        if left != yielded:
            yielded = left
            yield left
        if not left:
            return
        if time.monotonic() > deadline:
            raise PlanError(
                f"{left} of {len(plan)} partitions are still moving after {timeout_ms} ms, and go "
                "on: look again with --verify, or stop them with --cancel"
            )
        sleep(POLL_INTERVAL_S)
