"""``quorate top``: who does how much, live."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin import open_admin
from quorate.cli.options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.cli.top_view import Look
    from quorate.client.admin import AdminClient

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"


@click.command()
@admin_options
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many looks.")
@click.option(
    "--topics",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Show so many of the busiest topics.",
)
@timeout_option(10_000)
@json_option
def top(
    bootstrap_server: str | None,
    data: Path | None,
    interval: float,
    count: int | None,
    topics: int,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show traffic, leaders and trouble of every broker, live; Ctrl-C ends it.

    Rates are of the time between two looks. With --json, one line per look.

    \b
    Example:
      quorate top --bootstrap-server 127.0.0.1:9092
      quorate top --count 1 --interval 5 --json
    """
    from quorate.cli import top_view

    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        before = _look(admin)
        while count is None or count > 0:
            time.sleep(interval)
            status, after = admin.cluster_status(), _look(admin)
            brokers = top_view.broker_rates(status, before, after)
            busiest = top_view.topic_rates(before, after, topics)
            if as_json:
                print_json(top_view.as_document(status, brokers, busiest))
            else:
                _show(top_view.lines(status, brokers, busiest))
            before = after
            count = None if count is None else count - 1


def _look(admin: "AdminClient") -> "Look":
    from quorate.cli.top_view import Look

    return Look.of(time.monotonic(), admin.metrics())


def _show(lines: list[str]) -> None:
    """Over the last look on a terminal, below it anywhere else."""
    clear = _HOME_AND_CLEAR if sys.stdout.isatty() else ""
    click.echo(clear + "\n".join(lines))
