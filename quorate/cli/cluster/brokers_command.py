"""``quorate brokers``: lists the brokers and what they hold, and empties one."""

from collections import Counter
from pathlib import Path

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo, echo_lines
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option


@click.group()
def brokers() -> None:
    """List brokers, or move everything away from one so that it can be removed.

    \b
    Example:
      quorate brokers list
      quorate brokers decommission 3
    """


@brokers.command("list")
@admin_options
@timeout_option(10_000)
@json_option
def list_(bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool) -> None:
    """List all registered brokers with the partitions that they lead and hold, also those that are
    down.

    \b
    Example:
      quorate brokers list --bootstrap-server 127.0.0.1:9092
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        status = admin.cluster_status()
        topics = admin.describe_topics()
    partitions = [partition for topic in topics for partition in topic.partitions]
    held = Counter(one for partition in partitions for one in partition.replicas)
    led = Counter(partition.leader for partition in partitions)
    live = {broker.id: broker for broker in status.brokers}
    rows = [
        {
            "id": one,
            "live": one in live,
            "kafka": live[one].kafka if one in live else "",
            "rack": live[one].rack if one in live else "",
            "leaders": led[one],
            "replicas": held[one],
        }
        for one in sorted({*live, *held})
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        rack = f", rack {row['rack']}" if row["rack"] else ""
        where = f"{row['kafka']}{rack}" if row["live"] else "away"
        echo(f"broker {row['id']:<4} {where}: leads {row['leaders']} of {row['replicas']} replicas")


@brokers.command()
@admin_options
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="Limit in bytes per second on what each broker sends and receives for this move.",
)
@timeout_option(24 * 3600 * 1000)
@json_option
def decommission(
    bootstrap_server: str | None,
    data: Path | None,
    broker_id: int,
    dry_run: bool,
    throttle: int | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Move all replicas away from broker ID. After that the broker can be removed for good.

    If the command is interrupted, call it again: it continues where it stopped. A broker that is
    already down can be decommissioned too, as long as other replicas are in sync.

    \b
    Example:
      quorate brokers decommission 3 --dry-run
      quorate brokers decommission 3 --throttle 50000000
    """
    from quorate.reassignment.emptying import empty_broker, next_pass
    from quorate.reassignment.reassignment_plan import plan_text

    with open_admin(bootstrap_server, data) as admin:
        if dry_run:
            echo_lines(plan_text(next_pass(admin, broker_id).plan))
            return
        moved = 0
        for progress in empty_broker(admin, broker_id, throttle, timeout_ms):
            moved = progress.moved
            if not as_json:
                echo(progress.text)
    if as_json:
        print_json({"broker_id": broker_id, "moved": moved})
    else:
        echo(f"Broker {broker_id} holds no replica any more: it may stop.")
