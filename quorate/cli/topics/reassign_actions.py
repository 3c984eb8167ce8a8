"""The actions of ``quorate reassign`` and their output, in the words of Kafka's tool."""

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quorate.cli.output import echo, echo_lines
from quorate.cli.shared_options import print_json

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import OngoingReassignment, PartitionName, PartitionResult
    from quorate.reassignment.reassignment_plan import Assignment


def generate(
    admin: "AdminClient",
    topics: Sequence[str],
    brokers: Sequence[int],
    disable_rack_aware: bool,
    as_json: bool,
) -> None:
    from quorate.broker.controller.managers.placement import PlacementStart
    from quorate.reassignment.reassignment_plan import (
        PlanError,
        assignment_of,
        plan_spread,
        plan_text,
    )

    live = {broker.id: broker.rack for broker in admin.cluster_status().brokers}
    away = [one for one in brokers if one not in live]
    if away:
        raise PlanError(f"brokers {away} of --broker-list are not live: {sorted(live)} are")
    racks = {one: "" if disable_rack_aware else live[one] for one in brokers}
    current = assignment_of(admin.describe_topics(topics))
    start = PlacementStart(random.getrandbits(16), random.getrandbits(16))
    proposed = plan_spread(current, racks, start)
    if as_json:
        print_json({"current": _document(current), "proposed": _document(proposed)})
        return
    echo("Current partition replica assignment")
    echo_lines(plan_text(current))
    echo()
    echo("Proposed partition reassignment configuration")
    echo_lines(plan_text(proposed))


def execute(
    admin: "AdminClient",
    plan: "Assignment",
    throttle: int | None,
    *,
    additional: bool,
    as_json: bool,
) -> None:
    from quorate.reassignment.reassignment_plan import PlanError, plan_text, texts_of
    from quorate.reassignment.reassignment_progress import current_assignment, start_reassignments
    from quorate.reassignment.reassignment_throttle import set_throttle, throttled_replicas

    if not additional and admin.list_partition_reassignments():
        raise PlanError(
            "there is an existing assignment running: wait for it, cancel it, or add to it with "
            "--additional"
        )
    current = current_assignment(admin, [name.topic for name in plan])
    if throttle is not None:
        set_throttle(admin, throttled_replicas(current, plan), throttle)
    results = start_reassignments(admin, plan)
    before = {name: current[name] for name in plan if name in current}
    if as_json:
        print_json({"current": _document(before), "partitions": _outcomes(results)})
    else:
        echo_lines(f"Current partition replica assignment\n\n{plan_text(before)}\n")
        echo("Save this to use as the --reassignment-json-file option during rollback")
    _raise_refused(results, "reassigning")
    if not as_json:
        if throttle is not None:
            echo(f"The inter-broker throttle limit was set to {throttle} B/s")
        echo(f"Successfully started partition reassignments for {texts_of(plan)}")


def verify(
    admin: "AdminClient", plan: "Assignment", *, keep_throttles: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from quorate.reassignment.reassignment_progress import ReassignmentState, reassignment_states
    from quorate.reassignment.reassignment_throttle import clear_throttle

    found = reassignment_states(admin, plan)
    clear = not keep_throttles and not admin.list_partition_reassignments()
    brokers = sorted(broker.id for broker in admin.cluster_status().brokers)
    topics = sorted({one.name.topic for one in found if one.state is not ReassignmentState.MISSING})
    if clear:
        clear_throttle(admin, brokers, topics)
    if as_json:
        documents = [asdict(one) | asdict(one.name) for one in found]
        for document in documents:
            del document["name"]
        print_json({"partitions": documents, "throttles_cleared": clear})
        return
    echo("Status of partition reassignment:")
    for one in found:
        echo(one.text)
    if clear:
        echo()
        echo(f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}")
        echo(f"Clearing topic-level throttles on topics {','.join(topics)}")


def cancel(
    admin: "AdminClient", plan: "Assignment", *, keep_throttles: bool, as_json: bool
) -> None:
    from quorate.client.results import PartitionName
    from quorate.reassignment.reassignment_plan import texts_of
    from quorate.reassignment.reassignment_progress import start_reassignments
    from quorate.reassignment.reassignment_throttle import clear_throttle

    moving = {
        PartitionName(topic=one.topic, partition=one.partition)
        for one in admin.list_partition_reassignments()
    }
    active = [name for name in plan if name in moving]
    results = start_reassignments(admin, dict.fromkeys(active))
    done = [one for one in results if one.ok]
    if as_json:
        print_json({"partitions": _outcomes(results)})
    elif done:
        names = [PartitionName(topic=one.topic, partition=one.partition) for one in done]
        echo(f"Successfully cancelled partition reassignments for: {texts_of(names)}")
    elif not active:
        echo("None of the specified partition reassignments are active.")
    _raise_refused(results, "cancelling")
    if not keep_throttles and not admin.list_partition_reassignments():
        topics = {name.topic for name in plan}
        known = sorted(topics.intersection(admin.list_topics()))
        clear_throttle(admin, [broker.id for broker in admin.cluster_status().brokers], known)


def list_moves(admin: "AdminClient", *, as_json: bool) -> None:
    from dataclasses import asdict

    ongoing = admin.list_partition_reassignments()
    if as_json:
        print_json([asdict(one) for one in ongoing])
    elif ongoing:
        echo("Current partition reassignments:")
        for one in ongoing:
            echo(_ongoing_text(one))
    else:
        echo("No partition reassignments found.")


def watch(admin: "AdminClient", plan: "Assignment", timeout_ms: int, *, as_json: bool) -> None:
    """Print the progress of ``plan`` until it is done. Ctrl-C stops only the printing."""
    from quorate.reassignment.reassignment_progress import until_done

    for left in until_done(admin, plan, timeout_ms):
        if not as_json:
            echo(f"{len(plan) - left} of {len(plan)} partitions have moved")


# --- what is shown ------------------------------------------------------------------------------


def _ongoing_text(one: "OngoingReassignment") -> str:
    parts = [f"replicas: {_ids(one.replicas)}."]
    if one.adding_replicas:
        parts.append(f"adding: {_ids(one.adding_replicas)}.")
    if one.removing_replicas:
        parts.append(f"removing: {_ids(one.removing_replicas)}.")
    return f"{one.topic}-{one.partition}: {' '.join(parts)}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _document(assignment: "Mapping[PartitionName, tuple[int, ...]]") -> Any:  # noqa: ANN401 - JSON
    import json

    from quorate.reassignment.reassignment_plan import plan_text

    return json.loads(plan_text(assignment))


def _outcomes(results: "Sequence[PartitionResult]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(one) for one in results]


def _raise_refused(results: "Sequence[PartitionResult]", what: str) -> None:
    """Raise one error for all partitions that were refused.

    Raises:
        RequestFailed: at least one partition was refused.
    """
    from quorate.client.errors import RequestFailed

    refused = [one for one in results if not one.ok]
    if refused:
        first = refused[0]
        more = f" (and {len(refused) - 1} more partitions)" if len(refused) > 1 else ""
        raise RequestFailed(
            first.error_code, f"{what} {first.topic}-{first.partition}: {first.message}{more}"
        )
