"""``quorate tables``: topics that are kept as Iceberg and Delta tables."""

from typing import TYPE_CHECKING, Any

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo, echo_lines
from quorate.cli.shared_options import admin_options, json_option, print_json
from quorate.cli.table_service.service_options import connection_to, needs_tables
from quorate.cli.table_service.tables_run import run
from quorate.cli.table_service.tables_upkeep import clean, compact
from quorate.cli.tables import table as text_table

if TYPE_CHECKING:
    from pathlib import Path

    from quorate.client.admin import AdminClient
    from quorate.client.results import Pipeline
    from quorate.tables.service.table_topics import TableTopic


@click.group()
def tables() -> None:
    """Keep topics as Iceberg or Delta tables, each offset exactly once.

    A topic says in its configuration that it is a table, and a table service does the rest. The
    service needs no job and no Java; several processes share the work.

    \b
    Example:
      quorate topics create --topic orders --partitions 6 --config table.format=iceberg
      quorate tables run --set tables.warehouse=/data/lake
      quorate tables status
      quorate tables pause orders
    """


tables.add_command(run)
tables.add_command(compact)
tables.add_command(clean)


@tables.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]…")
@admin_options
@json_option
def status(
    topics: tuple[str, ...], bootstrap_server: str | None, data: "Path | None", as_json: bool
) -> None:
    """Show the tables: who keeps them, how many rows they have got, and how far they are behind.

    Of a table that fails, it shows the error, and since when nothing has succeeded. The lag in
    seconds is the time since the last commit, if records wait.

    \b
    Example:
      quorate tables status
      quorate tables status orders --json
    """
    with needs_tables():
        from quorate.tables.service.table_status import table_statuses
        from quorate.tables.service.table_topics import table_topics

    with open_admin(bootstrap_server, data) as admin:
        found = table_statuses(
            admin, connection_to(bootstrap_server, data), table_topics(admin, topics or None)
        )
    if as_json:
        print_json([one.as_document() for one in found])
        return
    rows = [
        (
            one.topic,
            one.format,
            one.state,
            f"{one.rows:,}",
            "-" if one.lag is None else f"{one.lag:,}",
            "-" if one.lag_s is None else f"{one.lag_s:.0f} s",
            one.owner or "-",
        )
        for one in found
    ]
    header = ("TOPIC", "FORMAT", "STATE", "ROWS", "LAG", "BEHIND", "KEPT BY")
    echo_lines(text_table(header, rows))
    for one in found:
        if one.failing_since_ms is not None:
            age = _age(one.failing_since_ms)
            echo_lines(f"\n{one.topic} has been failing for {age}: {one.error}")
            echo_lines("The service tries again by itself, at least once a minute.")


def _age(since_ms: int) -> str:
    import time

    seconds = max(round(time.time() - since_ms / 1000), 0)
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


@tables.command()
@click.argument("topic")
@admin_options
def pause(topic: str, bootstrap_server: str | None, data: "Path | None") -> None:
    """Let the table of a topic stand still. Its records wait in the topic.

    \b
    Example:
      quorate tables pause orders
    """
    with open_admin(bootstrap_server, data) as admin:
        _set_paused(admin, topic, paused=True)
    echo(f"the table of {topic} stands still; quorate tables resume {topic} lets it go on")


@tables.command()
@click.argument("topic")
@admin_options
def resume(topic: str, bootstrap_server: str | None, data: "Path | None") -> None:
    """Let the table of a topic go on where it stopped.

    \b
    Example:
      quorate tables resume orders
    """
    with open_admin(bootstrap_server, data) as admin:
        _set_paused(admin, topic, paused=False)
    echo(f"the table of {topic} goes on")


@tables.command()
@click.argument("topic")
@click.option(
    "--to-offsets",
    "position",
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help="earliest, latest-100, -2h, or JSON as for Spark's startingOffsets: "
    '{"orders":{"0":42,"1":"earliest"}}.',
)
@click.option("--yes", is_flag=True, help="Do it without asking.")
@admin_options
def backfill(
    topic: str, position: str, yes: bool, bootstrap_server: str | None, data: "Path | None"
) -> None:
    """Fill the table of a topic again from earlier offsets.

    Rows at and after these offsets are removed from the table, then read again from the topic. Rows
    whose records the topic no longer has are gone then.

    \b
    Example:
      quorate tables backfill orders --yes
      quorate tables backfill orders --to-offsets -2h --yes
    """
    with needs_tables():
        from quorate.pipeline.pipeline_positions import reset_targets
        from quorate.pipeline.run_setup import source_errors
        from quorate.spark.options.option_table import STARTING_OFFSETS

    bound = STARTING_OFFSETS.kind.parse(STARTING_OFFSETS.name, position)
    assert bound is not None
    if not yes:
        click.confirm(f"remove rows of {topic} from {position} on and read them again?", abort=True)
    connection = connection_to(bootstrap_server, data)
    with open_admin(bootstrap_server, data) as admin, source_errors():
        found = _table_of(admin, topic)
        was_paused = found.is_paused
        _set_paused(admin, topic, paused=True)
        try:
            state = _idle(admin, found)
            targets = reset_targets(connection, state, bound, [topic])
            admin.reset_pipeline(state.name, targets, expected_version=state.version)
        finally:
            if not was_paused:
                _set_paused(admin, topic, paused=False)
    echo(f"the table of {topic} is filled again from {position}")


def _table_of(admin: "AdminClient", topic: str) -> "TableTopic":
    from quorate.tables.service.table_topics import table_topics
    from quorate.tables.table_errors import TableError

    for one in table_topics(admin, [topic]):
        return one
    raise TableError(
        f"topic {topic} has no table: set it with quorate configs --alter --entity-type topics "
        f"--entity-name {topic} --add-config table.format=iceberg"
    )


def _set_paused(admin: "AdminClient", topic: str, *, paused: bool) -> None:
    from quorate.client.results import ConfigChange
    from quorate.common.table_keys import TABLE_PAUSED

    _table_of(admin, topic)
    change = ConfigChange("topic", topic, {TABLE_PAUSED.name: "true" if paused else None})
    for result in admin.incremental_alter_configs([change]):
        result.raise_for_error()


def _idle(admin: "AdminClient", table: "TableTopic") -> "Pipeline":
    """Return the state of the table's pipeline once no run of it is alive."""
    import time

    from quorate.tables.table_errors import TableError

    deadline_s = time.monotonic() + 60
    while True:
        states: list[Any] = admin.describe_pipelines([table.pipeline])
        if not states or not states[0].topics:
            raise TableError(f"the table of {table.topic} has had no run so far")
        state: Pipeline = states[0]
        if not state.alive:
            return state
        if time.monotonic() >= deadline_s:
            raise TableError(
                f"the table of {table.topic} is still kept by {state.owner}: is that process stuck?"
            )
        time.sleep(0.2)
