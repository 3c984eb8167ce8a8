"""Puts a pipeline together from its file, and runs it in a Spark session."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from pyspark.sql import SparkSession

from quorate.pipeline.batch_runner import BatchRunner, RunSummary
from quorate.pipeline.folder_columns import folder_columns
from quorate.pipeline.pipeline_config import PipelineConfig
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelinePlanner
from quorate.pipeline.pipeline_runner import PipelineRunner
from quorate.pipeline.run_progress import ProgressBar, RunProgress
from quorate.pipeline.run_setup import run_in_charge, source_errors
from quorate.pipeline.sink import Sink
from quorate.pipeline.sink_files import HadoopFiles
from quorate.pipeline.sink_layout import OWN_FOLDER
from quorate.pipeline.spark_rows import SparkRows
from quorate.spark.session import open_session


def pipeline_session(
    config: PipelineConfig, master: str | None, settings: dict[str, str]
) -> SparkSession:
    """Open a Spark session for a pipeline; stop it.

    Args:
        config: the pipeline's file.
        master: the URL of Spark's master; None leaves it to Spark's own configuration.
        settings: settings of Spark.

    Raises:
        PipelineError: there is no Java for Spark.
    """
    from quorate.spark.java_home import JavaNotFound

    try:
        return open_session(f"quorate pipeline {config.name}", master=master, settings=settings)
    except JavaNotFound as error:
        raise PipelineError(str(error)) from error


def execute(
    config: PipelineConfig,
    session: SparkSession,
    *,
    terminal: TextIO | None = None,
    take_over: bool = False,
    interval_s: float | None = None,
    on_round: Callable[[RunSummary], None] | None = None,
) -> RunSummary:
    """Run a pipeline from its beginning to its end.

    Args:
        config: the pipeline's file.
        session: where Spark runs.
        terminal: shows a progress bar; None shows nothing.
        take_over: begin even if another run is alive.
        interval_s: look for new records again after so many seconds, until interrupted; None runs
            once.
        on_round: is called with the summary so far after every round but the last.

    Raises:
        PipelineError: the run could not begin or go on; the message says what to do.
        ClusterUnreachable: no broker answers.
    """
    with source_errors(), _begun(config, session, terminal, take_over) as (run, planner):
        run.prepare(time.time_ns() // 1_000_000)
        run.work()
        while interval_s is not None:
            if on_round is not None:
                on_round(run.summary)
            time.sleep(interval_s)
            planner.look_again()
            run.work()
        return run.summary


@contextmanager
def _begun(
    config: PipelineConfig, session: SparkSession, terminal: TextIO | None, take_over: bool
) -> Iterator[tuple[BatchRunner, PipelinePlanner]]:
    """Begin a run into what the pipeline writes to."""
    rows = SparkRows(
        session,
        source=config.reading,
        include_headers=config.include_headers,
        sql=config.sql,
        compression=config.compression,
        folder_fields=config.folder_fields,
    )
    progress = RunProgress() if terminal is None else ProgressBar(terminal, rows.fraction_done)
    take_charge = functools.partial(run_in_charge, config, take_over=take_over)
    if config.table is None:
        files = HadoopFiles(session, config.path)
        files.require_writable(f"{OWN_FOLDER}/{config.name}")
        rows.root = files.root
        rows.check()
        with (
            run_in_charge(config, files.root, rows.cancel, take_over=take_over) as (
                charge,
                planner,
            ),
            progress,
        ):
            sink = Sink(config.name, files, folder_columns(config.folder_fields))
            yield (
                PipelineRunner(charge, sink=sink, planner=planner, rows=rows, progress=progress),
                planner,
            )
        return
    from quorate.tables.open_table import open_table
    from quorate.tables.spark_table_rows import SparkTableRows
    from quorate.tables.table_runner import TableRunner

    table_rows = SparkTableRows(rows)
    table = open_table(config.table, config.name, table_rows.schema)
    with take_charge(table.sink, rows.cancel) as (charge, planner), progress:
        yield (
            TableRunner(charge, table=table, planner=planner, rows=table_rows, progress=progress),
            planner,
        )
