"""``quorate reassign``: moves replicas, with flags and JSON of kafka-reassign-partitions."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.options import (
    cluster_options,
    json_option,
    print_json,
    resolve_bootstrap,
    timeout_option,
)

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import OngoingReassignment, PartitionName, PartitionResult
    from quorate.reassignment.plan import Assignment

CLIENT_ID: Final = "quorate-cli"

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@cluster_options
@click.option(
    "--generate",
    "action",
    flag_value="generate",
    help="Propose a plan; needs --topics-to-move-json-file and --broker-list.",
)
@click.option("--execute", "action", flag_value="execute", help="Begin a plan.")
@click.option(
    "--verify",
    "action",
    flag_value="verify",
    help="Say how far a plan is; remove its throttles once it is done.",
)
@click.option(
    "--cancel",
    "action",
    flag_value="cancel",
    help="Stop a plan: what is under way goes back to where it came from.",
)
@click.option("--list", "action", flag_value="list", help="List what is under way.")
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    type=_File,
    help='{"version":1,"topics":[{"topic":"foo"}]}',
)
@click.option(
    "--reassignment-json-file",
    "plan_file",
    type=_File,
    help='{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
)
@click.option("--broker-list", metavar="1,2,3", help="Brokers to place replicas on.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="Limit what each broker sends and takes for the plan.",
)
@click.option("--preserve-throttles", is_flag=True, help="Do not remove throttles.")
@click.option("--additional", is_flag=True, help="Also where other reassignments are under way.")
@click.option("--wait", is_flag=True, help="With --execute: show progress until all is done.")
@timeout_option(30_000)
@json_option
def reassign(
    bootstrap_server: str | None,
    data: Path | None,
    action: str | None,
    topics_file: Path | None,
    plan_file: Path | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    throttle: int | None,
    preserve_throttles: bool,
    additional: bool,
    wait: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Move replicas from broker to broker.

    \b
    Example:
      quorate reassign --generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4
      quorate reassign --execute --reassignment-json-file plan.json --throttle 50000000
      quorate reassign --verify --reassignment-json-file plan.json
      quorate reassign --cancel --reassignment-json-file plan.json
      quorate reassign --list
    """
    from quorate.client.admin import AdminClient
    from quorate.reassignment.plan import read_plan, read_topics

    _check_options(action, topics_file=topics_file, broker_list=broker_list, plan_file=plan_file)
    bootstrap = resolve_bootstrap(bootstrap_server, data)
    with AdminClient(bootstrap, timeout_ms=timeout_ms, client_id=CLIENT_ID) as admin:
        match action:
            case "list":
                _list(admin, as_json=as_json)
            case "generate":
                assert topics_file is not None
                brokers = _broker_list(broker_list or "")
                _generate(admin, read_topics(topics_file), brokers, disable_rack_aware, as_json)
            case _:
                assert plan_file is not None
                plan = read_plan(plan_file)
                if action == "execute":
                    _execute(admin, plan, throttle, additional=additional, as_json=as_json)
                    if wait:
                        watch(admin, plan, WAIT_TIMEOUT_MS, as_json=as_json)
                elif action == "verify":
                    _verify(admin, plan, keep_throttles=preserve_throttles, as_json=as_json)
                else:
                    _cancel(admin, plan, keep_throttles=preserve_throttles, as_json=as_json)


WAIT_TIMEOUT_MS: Final = 7 * 24 * 3600 * 1000
"""Moving terabytes takes as long as it takes."""


def _check_options(action: str | None, **given: object) -> None:
    """Raises ``click.UsageError`` where an action lacks what it works on."""
    if action is None:
        raise click.UsageError(f"what is to be done? Give one of --{', --'.join(ACTIONS)}")
    needed = {
        "generate": {"topics_file": "--topics-to-move-json-file", "broker_list": "--broker-list"},
        "list": {},
    }.get(action, {"plan_file": "--reassignment-json-file"})
    missing = [option for name, option in needed.items() if given[name] is None]
    if missing:
        raise click.UsageError(f"--{action} needs {' and '.join(missing)}")


def _broker_list(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {text}: must be broker ids like 1,2,3") from None
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {text}: names a broker more than once")
    return brokers


# --- actions ------------------------------------------------------------------------------------


def _generate(
    admin: "AdminClient",
    topics: Sequence[str],
    brokers: Sequence[int],
    disable_rack_aware: bool,
    as_json: bool,
) -> None:
    from broker.controller.managers.placement import PlacementStart
    from quorate.reassignment.plan import PlanError, assignment_of, plan_text
    from quorate.reassignment.propose import spread

    live = {broker.id: broker.rack for broker in admin.cluster_status().brokers}
    away = [one for one in brokers if one not in live]
    if away:
        raise PlanError(f"brokers {away} of --broker-list are not live: {sorted(live)} are")
    racks = {one: "" if disable_rack_aware else live[one] for one in brokers}
    current = assignment_of(admin.describe_topics(topics))
    start = PlacementStart(random.getrandbits(16), random.getrandbits(16))
    proposed = spread(current, racks, start)
    if as_json:
        print_json({"current": _document(current), "proposed": _document(proposed)})
        return
    click.echo("Current partition replica assignment")
    click.echo(plan_text(current))
    click.echo("\nProposed partition reassignment configuration")
    click.echo(plan_text(proposed))


def _execute(
    admin: "AdminClient",
    plan: "Assignment",
    throttle: int | None,
    *,
    additional: bool,
    as_json: bool,
) -> None:
    from quorate.reassignment.plan import PlanError, plan_text, texts_of
    from quorate.reassignment.progress import begin, current_assignment
    from quorate.reassignment.throttle import set_throttle, throttled

    if not additional and admin.list_partition_reassignments():
        raise PlanError(
            "there is an existing assignment running: wait for it, cancel it, or add to it with "
            "--additional"
        )
    current = current_assignment(admin, [name.topic for name in plan])
    if throttle is not None:
        set_throttle(admin, throttled(current, plan), throttle)
    results = begin(admin, plan)
    before = {name: current[name] for name in plan if name in current}
    if as_json:
        print_json({"current": _document(before), "partitions": _outcomes(results)})
    else:
        click.echo(f"Current partition replica assignment\n\n{plan_text(before)}\n")
        click.echo("Save this to use as the --reassignment-json-file option during rollback")
    _raise_refused(results, "reassigning")
    if not as_json:
        if throttle is not None:
            click.echo(f"The inter-broker throttle limit was set to {throttle} B/s")
        click.echo(f"Successfully started partition reassignments for {texts_of(plan)}")


def _verify(
    admin: "AdminClient", plan: "Assignment", *, keep_throttles: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from quorate.reassignment.progress import State, states
    from quorate.reassignment.throttle import clear_throttle

    found = states(admin, plan)
    clear = not keep_throttles and not admin.list_partition_reassignments()
    brokers = sorted(broker.id for broker in admin.cluster_status().brokers)
    topics = sorted({one.name.topic for one in found if one.state is not State.MISSING})
    if clear:
        clear_throttle(admin, brokers, topics)
    if as_json:
        documents = [asdict(one) | asdict(one.name) for one in found]
        for document in documents:
            del document["name"]
        print_json({"partitions": documents, "throttles_cleared": clear})
        return
    click.echo("Status of partition reassignment:")
    for one in found:
        click.echo(one.text)
    if clear:
        click.echo(f"\nClearing broker-level throttles on brokers {','.join(map(str, brokers))}")
        click.echo(f"Clearing topic-level throttles on topics {','.join(topics)}")


def _cancel(
    admin: "AdminClient", plan: "Assignment", *, keep_throttles: bool, as_json: bool
) -> None:
    from quorate.client.results import PartitionName
    from quorate.reassignment.plan import texts_of
    from quorate.reassignment.progress import begin
    from quorate.reassignment.throttle import clear_throttle

    moving = {
        PartitionName(topic=one.topic, partition=one.partition)
        for one in admin.list_partition_reassignments()
    }
    active = [name for name in plan if name in moving]
    results = begin(admin, dict.fromkeys(active))
    done = [one for one in results if one.ok]
    if as_json:
        print_json({"partitions": _outcomes(results)})
    elif done:
        names = [PartitionName(topic=one.topic, partition=one.partition) for one in done]
        click.echo(f"Successfully cancelled partition reassignments for: {texts_of(names)}")
    elif not active:
        click.echo("None of the specified partition reassignments are active.")
    _raise_refused(results, "cancelling")
    if not keep_throttles and not admin.list_partition_reassignments():
        topics = {name.topic for name in plan}
        known = sorted(topics.intersection(admin.list_topics()))
        clear_throttle(admin, [broker.id for broker in admin.cluster_status().brokers], known)


def _list(admin: "AdminClient", *, as_json: bool) -> None:
    from dataclasses import asdict

    ongoing = admin.list_partition_reassignments()
    if as_json:
        print_json([asdict(one) for one in ongoing])
    elif ongoing:
        click.echo("Current partition reassignments:")
        for one in ongoing:
            click.echo(_ongoing_text(one))
    else:
        click.echo("No partition reassignments found.")


def watch(admin: "AdminClient", plan: "Assignment", timeout_ms: int, *, as_json: bool) -> None:
    """Say how far ``plan`` is until it is done. Ctrl-C stops watching, the moves go on."""
    from quorate.reassignment.progress import until_done

    for left in until_done(admin, plan, timeout_ms):
        if not as_json:
            click.echo(f"{len(plan) - left} of {len(plan)} partitions have moved")


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

    from quorate.reassignment.plan import plan_text

    return json.loads(plan_text(assignment))


def _outcomes(results: "Sequence[PartitionResult]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(one) for one in results]


def _raise_refused(results: "Sequence[PartitionResult]", what: str) -> None:
    """One line for all that was refused.

    Raises:
        RequestFailed: something was.
    """
    from quorate.client.errors import RequestFailed

    refused = [one for one in results if not one.ok]
    if refused:
        first = refused[0]
        more = f" (and {len(refused) - 1} more partitions)" if len(refused) > 1 else ""
        raise RequestFailed(
            first.error_code, f"{what} {first.topic}-{first.partition}: {first.message}{more}"
        )
