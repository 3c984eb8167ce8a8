"""``quorate reassign``: moves replicas, with the flags and the JSON of
kafka-reassign-partitions."""

from pathlib import Path
from typing import Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.shared_options import admin_options, json_option, timeout_option

WAIT_TIMEOUT_MS: Final = 7 * 24 * 3600 * 1000
"""A week: moving terabytes takes long."""

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@admin_options
@click.option(
    "--generate",
    "action",
    flag_value="generate",
    help="Propose a plan; needs --topics-to-move-json-file and --broker-list.",
)
@click.option("--execute", "action", flag_value="execute", help="Start a plan.")
@click.option(
    "--verify",
    "action",
    flag_value="verify",
    help="Show the progress of a plan; remove its throttles once it is done.",
)
@click.option(
    "--cancel",
    "action",
    flag_value="cancel",
    help="Cancel a plan: partitions that are still moving return to their former replicas.",
)
@click.option("--list", "action", flag_value="list", help="List the reassignments in progress.")
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    type=_File,
    help='File with the topics to move: {"version":1,"topics":[{"topic":"foo"}]}',
)
@click.option(
    "--reassignment-json-file",
    "plan_file",
    type=_File,
    help="File with the plan: "
    '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
)
@click.option("--broker-list", metavar="1,2,3", help="Brokers that may receive replicas.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore the racks of the brokers.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="Limit in bytes per second on what each broker sends and receives for the plan.",
)
@click.option(
    "--preserve-throttles", is_flag=True, help="Keep the throttles when the plan is done."
)
@click.option(
    "--additional", is_flag=True, help="Start the plan even if other reassignments are in progress."
)
@click.option(
    "--wait", is_flag=True, help="With --execute: show the progress until the plan is done."
)
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
    from quorate.cli.topics import reassign_actions as actions
    from quorate.reassignment.reassignment_plan import read_plan, read_topics

    _check_options(action, topics_file=topics_file, broker_list=broker_list, plan_file=plan_file)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        match action:
            case "list":
                actions.list_moves(admin, as_json=as_json)
            case "generate":
                assert topics_file is not None
                brokers = _broker_list(broker_list or "")
                actions.generate(
                    admin, read_topics(topics_file), brokers, disable_rack_aware, as_json
                )
            case _:
                assert plan_file is not None
                plan = read_plan(plan_file)
                if action == "execute":
                    actions.execute(admin, plan, throttle, additional=additional, as_json=as_json)
                    if wait:
                        actions.watch(admin, plan, WAIT_TIMEOUT_MS, as_json=as_json)
                elif action == "verify":
                    actions.verify(admin, plan, keep_throttles=preserve_throttles, as_json=as_json)
                else:
                    actions.cancel(admin, plan, keep_throttles=preserve_throttles, as_json=as_json)


def _check_options(action: str | None, **given: object) -> None:
    """Check that the action has all the options that it needs.

    Raises:
        click.UsageError: an option is missing.
    """
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
