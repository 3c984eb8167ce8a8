"""``quorate top``: shows the traffic of brokers, topics and groups, live."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    admin_options,
    given_grpc_servers,
    json_option,
    kafka_options,
    print_json,
    resolve_bootstrap,
    timeout_option,
)

if TYPE_CHECKING:
    from quorate.cli.top.measurements import Look
    from quorate.cli.top.top_groups import GroupSnapshot
    from quorate.cli.top.top_share_groups import ShareGroupSnapshot
    from quorate.client.admin import AdminClient

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"


@click.command()
@admin_options
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two measurements.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of measurements.")
@click.option(
    "--topics",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of topics to show, those with the most traffic first.",
)
@click.option(
    "--groups",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of consumer groups, and of share groups, to show, those with the largest lag "
    "first. 0 does not ask for groups.",
)
@timeout_option(10_000)
@json_option
def top(
    bootstrap_server: str | None,
    data: Path | None,
    interval: float,
    count: int | None,
    topics: int,
    groups: int,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the traffic and the alerts of every broker, and the lag of groups. Ctrl-C stops the
    command.

    Rates are averages over the time between two measurements. With --json, each measurement is one
    line.

    \b
    Example:
      quorate top --bootstrap-server 127.0.0.1:9092
      quorate top --count 1 --interval 5 --json
    """
    from quorate.cli.top import top_groups, top_share_groups, top_view

    look_at_groups = _group_looks(bootstrap_server, data, timeout_ms, wanted=groups)
    look_at_share_groups = _share_group_looks(bootstrap_server, data, timeout_ms, wanted=groups)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        before, groups_before = _look(admin), look_at_groups()
        while count is None or count > 0:
            time.sleep(interval)
            status, after, groups_after = admin.cluster_status(), _look(admin), look_at_groups()
            brokers = top_view.broker_rates(status, before, after)
            busiest = top_view.topic_rates(before, after, topics)
            behind = top_groups.group_rates(groups_before, groups_after, groups)
            shared = look_at_share_groups()
            sharing = top_share_groups.share_group_rates(before, after, shared, groups)
            if as_json:
                print_json(top_view.as_document(status, brokers, busiest, behind, sharing))
            else:
                _show(
                    top_view.lines(status, brokers, busiest, behind, sharing, groups_after, shared)
                )
            before, groups_before = after, groups_after
            count = None if count is None else count - 1


def _look(admin: "AdminClient") -> "Look":
    from quorate.cli.top.measurements import Look

    return Look.of(time.monotonic(), admin.metrics())


def _group_looks(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, *, wanted: int
) -> "Callable[[], GroupSnapshot]":
    """Return the function that asks for groups over the Kafka protocol.

    If that fails, the reason is shown, and everything else too.
    """
    from quorate.cli.groups.group_offsets import Groups
    from quorate.cli.top.top_groups import GroupSnapshot, look

    if not wanted:
        return lambda: GroupSnapshot(time.monotonic())
    if given_grpc_servers():
        unknown = "shown with --bootstrap-server only"
        return lambda: GroupSnapshot(time.monotonic(), trouble=unknown)
    bootstrap = resolve_bootstrap(bootstrap_server, data)
    reads = Groups({"bootstrap.servers": bootstrap, **kafka_options()}, timeout_ms)

    def look_at_groups() -> GroupSnapshot:
        try:
            return look(time.monotonic(), reads)
        except click.ClickException as error:
            return GroupSnapshot(time.monotonic(), trouble=error.message)

    return look_at_groups


def _share_group_looks(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, *, wanted: int
) -> "Callable[[], ShareGroupSnapshot]":
    """Return the function that asks for share groups, as ``_group_looks`` does for groups."""
    from quorate.cli.share_groups.share_groups_command import open_share_groups
    from quorate.cli.top.top_share_groups import ShareGroupSnapshot, look
    from quorate.client.bootstrap import BootstrapError
    from quorate.client.errors import QuorateError

    if not wanted or given_grpc_servers():
        return lambda: ShareGroupSnapshot({})
    bootstrap = resolve_bootstrap(bootstrap_server, data)

    def look_at_share_groups() -> ShareGroupSnapshot:
        try:
            return look(open_share_groups(bootstrap, timeout_ms))
        except (click.ClickException, BootstrapError, QuorateError) as error:
            return ShareGroupSnapshot({}, str(error))

    return look_at_share_groups


def _show(lines: list[str]) -> None:
    """Print the lines over the last measurement on a terminal, and below it anywhere else."""
    if sys.stdout.isatty():
        sys.stdout.write(_HOME_AND_CLEAR)
    for line in lines:
        echo(line)
