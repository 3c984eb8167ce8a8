"""Puts a pipeline together from its file, and runs it in a Spark session."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, TextIO

from pyspark.sql import SparkSession

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline
from quorate.pipeline.pipeline_config import PipelineConfig, security_options
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelinePlanner
from quorate.pipeline.pipeline_registry import ActiveRun, LeaseRenewal
from quorate.pipeline.pipeline_runner import PipelineRunner, RunSummary
from quorate.pipeline.run_progress import ProgressBar, RunProgress
from quorate.pipeline.sink import Sink
from quorate.pipeline.sink_files import HadoopFiles
from quorate.pipeline.sink_layout import OWN_FOLDER
from quorate.pipeline.spark_rows import SparkRows
from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.errors import QuorateSourceError
from quorate.spark.session import open_session

BEGIN_INTERVAL_S: Final = 1.0
RENEWALS_PER_LEASE: Final = 3


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


def admin_of(config: PipelineConfig) -> AdminClient:
    """Return an admin client of the pipeline's cluster; close it."""
    connection = config.source.reading.connection
    return AdminClient(
        connection.bootstrap_servers,
        client_id=f"quorate-pipeline-{config.name}",
        options=security_options(config),
    )


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
    with source_errors():
        files = HadoopFiles(session, config.path)
        files.require_writable(f"{OWN_FOLDER}/{config.name}")
        rows = SparkRows(
            session,
            files.root,
            source=config.reading,
            include_headers=config.include_headers,
            sql=config.sql,
            compression=config.compression,
        )
        rows.check()
        with (
            closing(PipelinePlanner(config.source, commits_of(config))) as planner,
            admin_of(config) as admin,
            admin_of(config) as renewing_admin,
        ):
            begun = begin(config, admin, files.root, take_over=take_over)
            charge = ActiveRun(admin, begun, config.lease_ms)
            renewal_interval_s = config.lease_ms / 1000 / RENEWALS_PER_LEASE
            with (
                ended(charge),
                LeaseRenewal(charge, renewing_admin, renewal_interval_s, rows),
                RunProgress() if terminal is None else ProgressBar(terminal, rows) as progress,
            ):
                run = PipelineRunner(
                    charge,
                    sink=Sink(config.name, files),
                    planner=planner,
                    rows=rows,
                    progress=progress,
                )
                run.prepare(time.time_ns() // 1_000_000)
                run.work()
                while interval_s is not None:
                    if on_round is not None:
                        on_round(run.summary)
                    time.sleep(interval_s)
                    planner.look_again()
                    run.work()
                return run.summary


def commits_of(config: PipelineConfig) -> StreamCommits | None:
    """Return what commits the offsets to a consumer group, beside the cluster's own record."""
    reading = config.source.reading
    return None if reading.commits is None else StreamCommits(reading.connection, reading.commits)


def begin(config: PipelineConfig, admin: AdminClient, root: str, *, take_over: bool) -> Pipeline:
    """Begin a run that is in charge.

    If an earlier run was killed, wait until its lease has ended.

    Raises:
        PipelineError: another run is alive, or the cluster refused the run for another reason.
    """
    owner = f"{socket.gethostname()} process {os.getpid()} {secrets.token_hex(4)}"
    deadline = time.monotonic() + config.lease_ms / 1000 + BEGIN_INTERVAL_S
    while True:
        try:
            return admin.begin_pipeline_run(
                config.name, owner=owner, lease_ms=config.lease_ms, sink=root, take_over=take_over
            )
        except RequestFailed as error:
            if error.error != "NON_EMPTY_GROUP" or time.monotonic() > deadline:
                raise PipelineError(error.message or str(error)) from error
        time.sleep(BEGIN_INTERVAL_S)


@contextmanager
def ended(charge: ActiveRun) -> Iterator[None]:
    """End the lease however the run ends, so that the next run need not wait for it."""
    try:
        yield
    finally:
        charge.end()


@contextmanager
def source_errors() -> Iterator[None]:
    """Raise the errors of the Spark source as errors of the pipeline."""
    try:
        yield
    except QuorateSourceError as error:
        raise PipelineError(str(error)) from error
