"""``quorate controller``: shows the controller, and replaces it (E5)."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import ClusterStatus


@click.group()
def controller() -> None:
    """Describe the controller, or replace it.

    \b
    Example:
      quorate controller describe --bootstrap-server 127.0.0.1:9092
      quorate controller resign --bootstrap-server 127.0.0.1:9092
      quorate controller move --to 2 --bootstrap-server 127.0.0.1:9092
    """


@controller.command()
@admin_options
@timeout_option(10_000)
@json_option
def describe(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """Show which broker is the controller, and its epoch.

    \b
    Example:
      quorate controller describe --data ./quorate-data --json
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        status = admin.cluster_status()
    _show(status, as_json=as_json)


@controller.command()
@admin_options
@timeout_option(30_000)
@json_option
def resign(bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool) -> None:
    """Make the controller resign, and wait until another broker has become the controller.

    \b
    Example:
      quorate controller resign --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        given_up = admin.resign_controller()
        status = _next_controller(admin, given_up, timeout_ms)
    _show(status, as_json=as_json)


@controller.command()
@admin_options
@click.option(
    "--to",
    type=click.IntRange(min=0),
    required=True,
    help="Id of the live broker that becomes the controller.",
)
@timeout_option(30_000)
@json_option
def move(
    bootstrap_server: str | None, data: Path | None, to: int, timeout_ms: int, as_json: bool
) -> None:
    """Make another broker the controller, and wait until that broker knows it.

    \b
    Example:
      quorate controller move --to 2 --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        epoch = admin.move_controller(to)
        status = _next_controller(admin, epoch - 1, timeout_ms)
    _show(status, as_json=as_json)


def _next_controller(admin: "AdminClient", given_up: int, timeout_ms: int) -> "ClusterStatus":
    from quorate.client.errors import ClusterUnreachable

    deadline = time.monotonic() + timeout_ms / 1000
    while time.monotonic() < deadline:
        status = admin.cluster_status()
        if status.controller_id >= 0 and status.controller_epoch > given_up:
            return status
        time.sleep(0.05)
    raise ClusterUnreachable(
        f"controller epoch {given_up} is over, but nobody followed within {timeout_ms} ms"
    )


def _show(status: "ClusterStatus", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"controller_id": status.controller_id, "controller_epoch": status.controller_epoch}
        )
    elif status.controller_id < 0:
        echo("no broker is the controller at the moment")
    else:
        echo(f"broker {status.controller_id} is the controller, epoch {status.controller_epoch}")
