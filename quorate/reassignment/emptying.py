"""Empties a broker, pass by pass: topics may be created and others may move replicas meanwhile."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from quorate.client.errors import RequestFailed
from quorate.client.results import ClusterStatus, OngoingReassignment, PartitionName
from quorate.reassignment.plan import Assignment, PlanError, assignment_of
from quorate.reassignment.progress import POLL_INTERVAL_S, ReassignmentAdmin, begin, until_done
from quorate.reassignment.propose import emptied
from quorate.reassignment.throttle import ConfigAdmin, clear_throttle, set_throttle, throttled


class EmptyingAdmin(ReassignmentAdmin, ConfigAdmin, Protocol):
    """The part of ``AdminClient`` that is needed here."""

    def cluster_status(self) -> ClusterStatus: ...


@dataclass(frozen=True, slots=True)
class Pass:
    """What is to be done next: nothing if ``leaving`` is empty."""

    current: Assignment
    plan: Assignment
    """Moves that are not under way yet."""
    leaving: Assignment
    """Every partition that the broker still has, and where it will be then."""


@dataclass(frozen=True, slots=True)
class EmptyingProgress:
    """``moved`` of the ``total`` partitions that were seen on the broker so far."""

    moved: int
    total: int

    @property
    def text(self) -> str:
        return f"{self.moved} of {self.total} partitions have moved"


def next_pass(admin: EmptyingAdmin, broker_id: int) -> Pass:
    """What is left to do now.

    Raises:
        PlanError: there are too few other brokers, or no trace of this one.
    """
    racks = {broker.id: broker.rack for broker in admin.cluster_status().brokers}
    ongoing = admin.list_partition_reassignments()
    current = assignment_of(admin.describe_topics())
    held = [name for name, replicas in current.items() if broker_id in replicas]
    if not held and broker_id not in racks:
        raise PlanError(
            f"broker {broker_id} is not live and holds no replica: {sorted(racks)} are live"
        )
    planned = {**current, **_targets(ongoing)}
    plan = emptied(planned, broker_id, racks)
    return Pass(current, plan, {name: plan.get(name, planned[name]) for name in held})


def _targets(ongoing: list[OngoingReassignment]) -> Assignment:
    """Where reassignments under way are going."""
    return {
        PartitionName(topic=one.topic, partition=one.partition): tuple(
            replica for replica in one.replicas if replica not in one.removing_replicas
        )
        for one in ongoing
    }


def empty(
    admin: EmptyingAdmin,
    broker_id: int,
    throttle: int | None,
    timeout_ms: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[EmptyingProgress]:
    """Move everything away; progress whenever it changes. Begun again, it goes on where it was.

    Raises:
        PlanError: there are too few other brokers, or it takes longer than ``timeout_ms``.
        RequestFailed: a move was refused.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    done: set[PartitionName] = set()
    work = next_pass(admin, broker_id)
    while work.leaving:
        total = len(done | set(work.leaving))
        what = throttled(work.current, work.leaving)
        if throttle is not None:
            set_throttle(admin, what, throttle)
        _begin(admin, work.plan)
        left_ms = max(0, int((deadline - time.monotonic()) * 1000))
        for left in until_done(admin, work.leaving, left_ms, sleep=sleep):
            yield EmptyingProgress(total - left, total)
        if throttle is not None:
            clear_throttle(admin, what.brokers, sorted(what.follower_replicas))
        done |= set(work.leaving)
        sleep(POLL_INTERVAL_S)
        work = next_pass(admin, broker_id)


def _begin(admin: EmptyingAdmin, plan: Assignment) -> None:
    for result in begin(admin, plan):
        if not result.ok and result.error != "UNKNOWN_TOPIC_OR_PARTITION":
            raise RequestFailed(
                result.error_code, f"moving {result.topic}-{result.partition}: {result.message}"
            )
