"""Moves all partitions away from a broker, in passes.

There is more than one pass because topics may be created, and other reassignments started, while
the broker is emptied.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import OngoingReassignment, PartitionName
from quorate.reassignment.reassignment_plan import (
    Assignment,
    PlanError,
    assignment_of,
    plan_emptying,
)
from quorate.reassignment.reassignment_progress import (
    POLL_INTERVAL_S,
    start_reassignments,
    until_done,
)
from quorate.reassignment.reassignment_throttle import (
    clear_throttle,
    set_throttle,
    throttled_replicas,
)


@dataclass(frozen=True, slots=True)
class EmptyingPass:
    """The work of the next pass. There is none left if ``leaving`` is empty."""

    current: Assignment
    plan: Assignment
    """The reassignments that have not been started yet."""
    leaving: Assignment
    """Every partition that the broker still holds, with its replicas after the pass."""


@dataclass(frozen=True, slots=True)
class EmptyingProgress:
    """The number of partitions that have left the broker, of all that were seen on it so far."""

    moved: int
    total: int

    @property
    def text(self) -> str:
        return f"{self.moved} of {self.total} partitions have moved"


def next_pass(admin: AdminClient, broker_id: int) -> EmptyingPass:
    """Plan the next pass from the present state of the cluster.

    Raises:
        PlanError: there are too few other brokers, or the broker is neither live nor holds a
            replica.
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
    plan = plan_emptying(planned, broker_id, racks)
    return EmptyingPass(current, plan, {name: plan.get(name, planned[name]) for name in held})


def _targets(ongoing: list[OngoingReassignment]) -> Assignment:
    """Return the target replicas of reassignments in progress."""
    return {
        PartitionName(topic=one.topic, partition=one.partition): tuple(
            replica for replica in one.replicas if replica not in one.removing_replicas
        )
        for one in ongoing
    }


def empty_broker(
    admin: AdminClient,
    broker_id: int,
    throttle: int | None,
    timeout_ms: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[EmptyingProgress]:
    """Move all partitions away, and yield the progress whenever it changes.

    A call after an interruption goes on where the first one was.

    Args:
        admin: the client of the cluster.
        broker_id: the broker to empty.
        throttle: bytes per second of the copying, or None for no limit.
        timeout_ms: how long all passes may take together.
        sleep: waits for a number of seconds.

    Raises:
        PlanError: there are too few other brokers, or it takes longer than ``timeout_ms``.
        RequestFailed: a reassignment was refused.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    done: set[PartitionName] = set()
    work = next_pass(admin, broker_id)
    while work.leaving:
        total = len(done | set(work.leaving))
        replicas = throttled_replicas(work.current, work.leaving)
        if throttle is not None:
            set_throttle(admin, replicas, throttle)
        _start(admin, work.plan)
        left_ms = max(0, int((deadline - time.monotonic()) * 1000))
        for left in until_done(admin, work.leaving, left_ms, sleep=sleep):
            yield EmptyingProgress(total - left, total)
        if throttle is not None:
            clear_throttle(admin, replicas.brokers, sorted(replicas.follower_replicas))
        done |= set(work.leaving)
        sleep(POLL_INTERVAL_S)
        work = next_pass(admin, broker_id)


def _start(admin: AdminClient, plan: Assignment) -> None:
    for result in start_reassignments(admin, plan):
        if not result.ok and result.error != "UNKNOWN_TOPIC_OR_PARTITION":
            raise RequestFailed(
                result.error_code, f"moving {result.topic}-{result.partition}: {result.message}"
            )
