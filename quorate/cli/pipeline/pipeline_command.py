"""``quorate pipeline``: reads topics into Parquet files, each offset exactly once."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from quorate.cli.output import echo, echo_lines
from quorate.cli.pipeline.pipeline_address import (
    PipelineAddress,
    connection_of,
    needs_spark,
    open_keeper,
    pipeline_options,
    require_name,
)
from quorate.cli.pipeline.pipeline_run import run
from quorate.cli.shared_options import json_option, print_json
from quorate.cli.tables import table

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import Pipeline
    from quorate.pipeline.pipeline_positions import PipelineLag


@click.group()
def pipeline() -> None:
    """Read topics into Parquet files, each offset exactly once.

    The cluster stores the progress of a pipeline under its name. If a run is killed, the next run
    repairs what it left. If two runs are started, only one is in charge.

    \b
    Example of orders.toml:
      name = "orders"
      [source]
      kafka.bootstrap.servers = "127.0.0.1:9092"
      subscribe = "orders"
      [transform]
      sql = "SELECT *, length(value) AS size FROM records"
      [sink]
      path = "/data/orders"

    \b
    Example:
      quorate pipeline run --config orders.toml --dry-run
      quorate pipeline run --config orders.toml
      quorate pipeline status --config orders.toml
      quorate pipeline reset --config orders.toml --to-offsets latest-1000
    """


pipeline.add_command(run)


class _Reset(NamedTuple):
    """The offset of one partition before and after a reset."""

    topic: str
    partition: int
    committed: int
    to: int


@pipeline.command(name="list")
@pipeline_options
@json_option
def list_pipelines(where: PipelineAddress, as_json: bool) -> None:
    """List the pipelines of the cluster.

    \b
    Example:
      quorate pipeline list --bootstrap-server 127.0.0.1:9092
    """
    with open_keeper(where) as admin:
        found = admin.describe_pipelines()
    if as_json:
        print_json([_as_document(one) for one in found])
        return
    rows = [(one.name, _run_of(one), f"{one.rows:,}", one.sink) for one in found]
    echo_lines(table(("PIPELINE", "RUN", "ROWS", "SINK"), rows))


@pipeline.command()
@pipeline_options
@json_option
def status(where: PipelineAddress, as_json: bool) -> None:
    """Show the progress of a pipeline: for each partition the offset that is done, the end of the
    log, and the lag.

    \b
    Example:
      quorate pipeline status --config orders.toml
      quorate pipeline status --name orders --bootstrap-server 127.0.0.1:9092 --json
    """
    with needs_spark():
        from quorate.pipeline.pipeline_positions import pipeline_lags
        from quorate.pipeline.run_setup import source_errors

    with open_keeper(where) as admin:
        found = _the_one(admin, require_name(where))
    with source_errors():
        partitions = pipeline_lags(connection_of(where), found)
    if as_json:
        print_json({**_as_document(found), "partitions": [_standing(one) for one in partitions]})
        return
    echo(f"pipeline    {found.name}")
    echo(f"sink        {found.sink}")
    echo(f"run         {_run_of(found)}, epoch {found.run_epoch}")
    echo(f"committed   {_time(found.committed_ms)}, {found.rows:,} rows in all")
    if found.rewound:
        echo("set back    the next run removes the rows behind these offsets")
    rows = [
        (
            one.partition.topic,
            str(one.partition.partition),
            f"{one.committed:,}",
            "gone" if one.end is None else f"{one.end:,}",
            "-" if one.lag is None else f"{one.lag:,}",
        )
        for one in partitions
    ]
    echo_lines(table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), rows))


@pipeline.command()
@pipeline_options
@click.option(
    "--to-offsets",
    "position",
    metavar="POSITION",
    help="earliest, latest, latest-100, earliest+100, -2h, or JSON as for Spark's "
    'startingOffsets: {"orders":{"0":42,"1":"earliest"}}.',
)
@click.option("--to-earliest", is_flag=True, help="Reset to the first available offset.")
@click.option(
    "--to-latest", is_flag=True, help="Reset to the end of the log, after the last record."
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Reset to the first record at or after a time, for example 2026-11-22T10:00:00Z.",
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only reset these topics.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
def reset(
    where: PipelineAddress,
    position: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    topics: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set a pipeline to other offsets, while no run of it is active.

    The next run removes the rows at and after these offsets from the sink, then reads them again.
    Records that are skipped by a reset to later offsets are never read.

    \b
    Example:
      quorate pipeline reset --config orders.toml --to-offsets '{"orders":{"0":42}}' --dry-run
      quorate pipeline reset --config orders.toml --to-datetime 2026-11-22T00:00:00Z
    """
    with needs_spark():
        from quorate.pipeline.pipeline_positions import reset_targets
        from quorate.pipeline.run_setup import source_errors
        from quorate.spark.options.option_table import STARTING_OFFSETS, STARTING_TIMESTAMP

    given = [
        (STARTING_OFFSETS, text)
        for text in (position, to_earliest and "earliest", to_latest and "latest")
        if text
    ]
    given += [(STARTING_TIMESTAMP, to_datetime)] if to_datetime else []
    if len(given) != 1:
        raise click.UsageError(
            "give exactly one of --to-offsets, --to-earliest, --to-latest, --to-datetime"
        )
    ((option, text),) = given
    with open_keeper(where) as admin, source_errors():
        bound = option.kind.parse(option.name, text)
        assert bound is not None
        found = _the_one(admin, require_name(where))
        targets = reset_targets(connection_of(where), found, bound, topics)
        changes = _changes(found, targets)
        if not dry_run:
            admin.reset_pipeline(found.name, targets, expected_version=found.version)
    if as_json:
        print_json({"name": found.name, "partitions": [one._asdict() for one in changes]})
        return
    rows = [(one.topic, str(one.partition), f"{one.committed:,}", f"{one.to:,}") for one in changes]
    echo_lines(table(("TOPIC", "PARTITION", "COMMITTED", "TO"), rows))
    if dry_run:
        echo("nothing was changed (--dry-run)")


@pipeline.command()
@pipeline_options
def delete(where: PipelineAddress) -> None:
    """Delete the stored progress of a pipeline, while no run of it is active. The files that it has
    written are kept.

    \b
    Example:
      quorate pipeline delete --name orders --bootstrap-server 127.0.0.1:9092
    """
    name = require_name(where)
    with open_keeper(where) as admin:
        admin.delete_pipeline(name)
    echo(f"pipeline {name} is forgotten")


def _the_one(admin: "AdminClient", name: str) -> "Pipeline":
    from quorate.pipeline.pipeline_errors import PipelineError

    for one in admin.describe_pipelines([name]):
        return one
    raise PipelineError(f"the cluster knows no pipeline {name!r}: it has had no run so far")


def _changes(found: "Pipeline", targets: "list[Any]") -> list[_Reset]:
    changes = []
    for target in targets:
        before = found.topic(target.topic)
        for number, offset in enumerate(target.offsets):
            at = before.offsets[number] if before and number < len(before.offsets) else -1
            if offset >= 0:
                changes.append(_Reset(target.topic, number, at, offset))
    return changes


def _run_of(found: "Pipeline") -> str:
    if found.alive:
        return f"alive since {_time(found.started_ms)} ({found.owner})"
    return f"none, the last began {_time(found.started_ms)}"


def _as_document(found: "Pipeline") -> dict[str, Any]:
    document = asdict(found)
    document["topics"] = {one.topic: list(one.offsets) for one in found.topics}
    return document


def _standing(one: "PipelineLag") -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
    }


def _time(at_ms: int) -> str:
    if not at_ms:
        return "never"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
