"""A pipeline put together from its file, and run in a Spark session."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from pyspark.sql import SparkSession

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline
from quorate.pipeline.cluster_planner import ClusterPlanner
from quorate.pipeline.config import PipelineConfig, security_options
from quorate.pipeline.errors import PipelineError
from quorate.pipeline.filesystem import HadoopFiles
from quorate.pipeline.layout import OWN_FOLDER
from quorate.pipeline.lease import Lease
from quorate.pipeline.registry import Keeper, RunInCharge
from quorate.pipeline.rows import SparkRows
from quorate.pipeline.run import Run, Summary, Watcher
from quorate.pipeline.sink import Sink
from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.errors import QuorateSourceError
from quorate.spark.session import open_session

BEGIN_INTERVAL_S: Final = 1.0
RENEWALS_PER_LEASE: Final = 3

Watch = Callable[[Callable[[], float]], AbstractContextManager[Watcher]]
"""From what tells how much of the present batch is done to who is told how the run goes."""


def pipeline_session(
    config: PipelineConfig, master: str | None, settings: dict[str, str]
) -> SparkSession:
    """A session for that pipeline; stop it. ``master`` None: as Spark is configured.

    Raises:
        PipelineError: there is no Java for Spark.
    """
    from quorate.spark.java_home import JavaNotFound

    try:
        return open_session(f"quorate pipeline {config.name}", master=master, settings=settings)
    except JavaNotFound as error:
        raise PipelineError(str(error)) from error


def admin_of(config: PipelineConfig) -> AdminClient:
    """The cluster's admin client; close it."""
    connection = config.source.reading.connection
    return AdminClient(
        connection.bootstrap_servers,
        client_id=f"quorate-pipeline-{config.name}",
        options=security_options(config),
    )


def execute(
    config: PipelineConfig,
    session: SparkSession,
    watch: Watch,
    *,
    take_over: bool = False,
    interval_s: float | None = None,
    told: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """A run from its beginning to its end; ``interval_s``: again and again, until interrupted.

    ``told``: after every round, the summary of all so far.

    Raises:
        PipelineError: it could not begin, or not go on; says what to do.
        ClusterUnreachable: nobody answers.
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
            closing(ClusterPlanner(config.source, commits_of(config))) as planner,
            admin_of(config) as keeper,
            admin_of(config) as renewing,
        ):
            begun = begin(config, keeper, files.root, take_over=take_over)
            charge = RunInCharge(keeper, begun, config.lease_ms)
            lease_s = config.lease_ms / 1000
            with (
                ended(charge),
                Lease(lambda: charge.renew(renewing), lease_s / RENEWALS_PER_LEASE, rows.cancel),
                watch(rows.fraction_done) as watcher,
            ):
                run = Run(
                    charge,
                    sink=Sink(config.name, files),
                    planner=planner,
                    write=rows.write,
                    watcher=watcher,
                    clock_ms=lambda: time.time_ns() // 1_000_000,
                )
                run.prepare()
                run.work()
                while interval_s is not None:
                    told(run.summary)
                    time.sleep(interval_s)
                    planner.look_again()
                    run.work()
                return run.summary


def commits_of(config: PipelineConfig) -> StreamCommits | None:
    """Whom to tell how far the pipeline is, beside the cluster's record."""
    reading = config.source.reading
    return None if reading.commits is None else StreamCommits(reading.connection, reading.commits)


def begin(config: PipelineConfig, keeper: Keeper, root: str, *, take_over: bool) -> Pipeline:
    """A run that is in charge. One that was killed before is waited out: it has a lease.

    Raises:
        PipelineError: another run is alive, or it was refused otherwise.
    """
    owner = f"{socket.gethostname()} process {os.getpid()} {secrets.token_hex(4)}"
    deadline = time.monotonic() + config.lease_ms / 1000 + BEGIN_INTERVAL_S
    while True:
        try:
            return keeper.begin_pipeline_run(
                config.name, owner=owner, lease_ms=config.lease_ms, sink=root, take_over=take_over
            )
        except RequestFailed as error:
            if error.error != "NON_EMPTY_GROUP" or time.monotonic() > deadline:
                raise PipelineError(error.message or str(error)) from error
        time.sleep(BEGIN_INTERVAL_S)


@contextmanager
def ended(charge: RunInCharge) -> Iterator[None]:
    """However it ends, nobody has to wait for the lease."""
    try:
        yield
    finally:
        charge.end()


@contextmanager
def source_errors() -> Iterator[None]:
    """What the source has to say, said as the pipeline's."""
    try:
        yield
    except QuorateSourceError as error:
        raise PipelineError(str(error)) from error
