"""How far a plan has come: partition by partition, as Kafka's tool says it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from quorate.client.results import OngoingReassignment, PartitionName, PartitionResult, TopicInfo
from quorate.reassignment.plan import Assignment, PlanError, Replicas, assignment_of, text_of

POLL_INTERVAL_S: Final = 0.25

SETTLE_S: Final = 3.0
"""The controller knows of an end before every broker does: so long a difference is no verdict."""

PIECE_PARTITIONS: Final = 1_000
"""Partitions in one request."""


class ReassignmentAdmin(Protocol):
    """The part of ``AdminClient`` that moves replicas."""

    def describe_topics(self, names: Sequence[str] = ()) -> list[TopicInfo]: ...

    def alter_partition_reassignments(
        self,
        targets: Mapping[PartitionName, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> list[PartitionResult]: ...

    def list_partition_reassignments(
        self, partitions: Sequence[PartitionName] | None = None
    ) -> list[OngoingReassignment]: ...


class State(StrEnum):
    """Where a partition of a plan is."""

    COMPLETE = "completed"
    MOVING = "in progress"
    ELSEWHERE = "elsewhere"
    """No move is under way, and the replicas are others than planned."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """``replicas``: what the partition has now; empty if there is no such partition."""

    name: PartitionName
    target: Replicas
    replicas: Replicas
    state: State

    @property
    def text(self) -> str:
        """One line, in the words of Kafka's tool."""
        name = text_of(self.name)
        match self.state:
            case State.COMPLETE:
                return f"Reassignment of partition {name} is completed."
            case State.MOVING:
                return f"Reassignment of partition {name} is still in progress."
            case State.MISSING:
                return f"There is no partition {name}."
            case State.ELSEWHERE:
                has, wanted = (
                    ",".join(map(str, replicas)) for replicas in (self.replicas, self.target)
                )
                return (
                    f"There is no active reassignment of partition {name}, but replica set is "
                    f"{has} rather than {wanted}."
                )


def begin(
    admin: ReassignmentAdmin, targets: Mapping[PartitionName, Replicas | None]
) -> list[PartitionResult]:
    """Ask for all of ``targets``, None to cancel; the results, in order."""
    names = list(targets)
    results: list[PartitionResult] = []
    for start in range(0, len(names), PIECE_PARTITIONS):
        piece = {name: targets[name] for name in names[start : start + PIECE_PARTITIONS]}
        results += admin.alter_partition_reassignments(piece)
    return results


def current_assignment(admin: ReassignmentAdmin, topics: Sequence[str]) -> Assignment:
    """Where the partitions of ``topics`` are; topics that do not exist are left out."""
    wanted = set(topics)
    return assignment_of(topic for topic in admin.describe_topics() if topic.name in wanted)


def states(admin: ReassignmentAdmin, plan: Assignment) -> list[PartitionState]:
    """Where the partitions of ``plan`` are; waits a moment where brokers contradict one another."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = _states(admin, plan)
        settled = all(one.state in (State.COMPLETE, State.MOVING) for one in found)
        if settled or time.monotonic() > deadline:
            return found
        time.sleep(POLL_INTERVAL_S)


def _states(admin: ReassignmentAdmin, plan: Assignment) -> list[PartitionState]:
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


def _state(is_moving: bool, replicas: Replicas | None, target: Replicas) -> State:
    if replicas is None:
        return State.MISSING
    if is_moving:
        return State.MOVING
    return State.COMPLETE if replicas == target else State.ELSEWHERE


def until_done(
    admin: ReassignmentAdmin,
    plan: Assignment,
    timeout_ms: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """How many partitions of ``plan`` are still moving, whenever that changes, down to 0.

    Raises:
        PlanError: some are moving still after ``timeout_ms``; they go on.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    told = -1
    while True:
        left = sum(
            PartitionName(topic=one.topic, partition=one.partition) in plan
            for one in admin.list_partition_reassignments()
        )
        if left != told:
            told = left
            yield left
        if not left:
            return
        if time.monotonic() > deadline:
            raise PlanError(
                f"{left} of {len(plan)} partitions are still moving after {timeout_ms} ms, and go "
                "on: look again with --verify, or stop them with --cancel"
            )
        sleep(POLL_INTERVAL_S)
