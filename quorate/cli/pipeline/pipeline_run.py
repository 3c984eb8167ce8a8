"""``quorate pipeline run``: one run in its own Spark session."""

import functools
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.output import echo, echo_lines
from quorate.cli.pipeline.pipeline_address import config_option, needs_spark, read_file
from quorate.cli.shared_options import json_option, key_values, print_json
from quorate.cli.tables import table

if TYPE_CHECKING:
    from quorate.pipeline.batch_runner import RunSummary
    from quorate.pipeline.pipeline_config import PipelineConfig
    from quorate.pipeline.pipeline_positions import PlannedRange


@click.command()
@config_option
@click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://…; executors on other "
    "machines need the quorate wheel. 'default' uses Spark's own configuration.",
)
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A configuration value of Spark."
)
@click.option(
    "--once",
    is_flag=True,
    help="Read up to the records that exist at the start, then end (the default).",
)
@click.option(
    "--continuous",
    "interval_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Read repeatedly with this many seconds between two reads, until interrupted.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the grammar of the SQL and show what would be read, without running Spark.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take over from a run that is still active. Without this flag, the command waits until "
    "the lease of a killed run has expired.",
)
@json_option
def run(
    file: Path | None,
    master: str,
    settings: tuple[str, ...],
    once: bool,
    interval_s: float | None,
    dry_run: bool,
    take_over: bool,
    as_json: bool,
) -> None:
    """Read new records into the sink.

    \b
    Example:
      quorate pipeline run --config orders.toml
      quorate pipeline run --config orders.toml --continuous 60
      quorate pipeline run --config orders.toml --master spark://host:7077 --conf spark.cores.max=8
    """
    if file is None:
        raise click.UsageError("which pipeline? Give --config FILE")
    if once and interval_s is not None:
        raise click.UsageError("give --once or --continuous, not both")
    config = read_file(file)
    spark_settings = key_values(settings, "--conf")
    if dry_run:
        _show_plan(config, as_json=as_json)
        return
    # SIGTERM acts as Ctrl-C: the running work is given up in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _run(
        config,
        None if master == "default" else master,
        spark_settings,
        take_over,
        interval_s,
        as_json,
    )


def _run(
    config: "PipelineConfig",
    master: str | None,
    settings: dict[str, str],
    take_over: bool,
    interval_s: float | None,
    as_json: bool,
) -> None:
    with needs_spark():
        from quorate.pipeline.execution import execute, pipeline_session

    began = time.monotonic()
    session = pipeline_session(config, master, settings)
    shown: list[RunSummary] = []
    try:
        summary = execute(
            config,
            session,
            terminal=None if as_json or not sys.stderr.isatty() else sys.stderr,
            take_over=take_over,
            interval_s=interval_s,
            on_round=functools.partial(_show_round, config.name, shown, as_json=as_json),
        )
    finally:
        session.stop()
    elapsed_s = time.monotonic() - began
    if as_json:
        print_json(_as_document(config.name, summary, elapsed_s))
    else:
        _show_summary(config.name, summary, elapsed_s)


def _show_round(
    name: str, shown: "list[RunSummary]", summary: "RunSummary", *, as_json: bool
) -> None:
    """Print a line for a round that has done anything."""
    from dataclasses import replace

    before = shown[-1].batches if shown else 0
    if summary.batches == before:
        return
    shown.append(replace(summary))
    if not as_json:
        echo(f"{name}: {summary.rows:,} rows in {summary.batches} batches so far")


def _show_summary(name: str, summary: "RunSummary", elapsed_s: float) -> None:
    rows = [
        (one.topic, str(one.partition), f"{start:,}", f"{end:,}", f"{end - start:,}")
        for one, (start, end) in sorted(summary.moved.items())
    ]
    if rows:
        echo_lines(table(("TOPIC", "PARTITION", "FROM", "TO", "OFFSETS"), rows))
    echo(
        f"{name}: {summary.rows:,} rows of {summary.offsets:,} offsets in {summary.batches} "
        f"batches and {summary.files} files, {elapsed_s:.1f} s"
    )


def _as_document(name: str, summary: "RunSummary", elapsed_s: float) -> dict[str, Any]:
    return {
        "name": name,
        "batches": summary.batches,
        "offsets": summary.offsets,
        "rows": summary.rows,
        "files": summary.files,
        "seconds": round(elapsed_s, 3),
        "partitions": [
            {"topic": one.topic, "partition": one.partition, "from": start, "to": end}
            for one, (start, end) in sorted(summary.moved.items())
        ],
    }


def _show_plan(config: "PipelineConfig", *, as_json: bool) -> None:
    from contextlib import closing

    with needs_spark():
        from quorate.pipeline.pipeline_planner import PipelinePlanner
        from quorate.pipeline.pipeline_positions import planned_ranges
        from quorate.pipeline.run_setup import admin_of, source_errors
        from quorate.pipeline.sql_check import check_sql, jvm_of_spark

    if config.sql:
        with jvm_of_spark() as jvm:
            check_sql(jvm, config.sql)
    with (
        admin_of(config) as admin,
        source_errors(),
        closing(PipelinePlanner(config.source)) as planner,
    ):
        state = next(iter(admin.describe_pipelines([config.name])), None)
        ranges = planned_ranges(planner, state)
    if as_json:
        print_json([_range(one) for one in ranges])
        return
    rows = [
        (
            one.partition.topic,
            str(one.partition.partition),
            f"{one.start:,}",
            f"{one.end:,}",
            f"{one.size:,}",
        )
        for one in ranges
    ]
    echo_lines(table(("TOPIC", "PARTITION", "FROM", "TO", "OFFSETS"), rows))
    total = sum(one.size for one in ranges)
    at_most = config.source.limits.at_most or max(total, 1)
    echo(f"{config.name}: {total:,} offsets in {-(-total // at_most)} batches (--dry-run)")
    if state is not None and state.rewound:
        echo("it was set back: rows behind these offsets are removed first")


def _range(one: "PlannedRange") -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "from": one.start,
        "to": one.end,
        "offsets": one.size,
    }
