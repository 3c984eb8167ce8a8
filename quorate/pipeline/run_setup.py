"""What every run of a pipeline needs, with or without Spark: clients, the lease, errors."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import Pipeline
from quorate.pipeline.pipeline_config import PipelineConfig, security_options
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelinePlanner
from quorate.pipeline.pipeline_registry import ActiveRun, LeaseRenewal
from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.errors import QuorateSourceError

BEGIN_INTERVAL_S: Final = 1.0
RENEWALS_PER_LEASE: Final = 3


@contextmanager
def run_in_charge(
    config: PipelineConfig,
    sink: str,
    cancel: Callable[[], None],
    *,
    take_over: bool = False,
    owner: str | None = None,
    waits: bool = True,
) -> Iterator[tuple[ActiveRun, PipelinePlanner]]:
    """Begin a run, and keep its lease until the end of the context.

    Args:
        config: the pipeline's file.
        sink: what the quorum remembers as the place of the rows.
        cancel: cancels the work of the run when the lease is lost.
        take_over: begin even if another run is alive.
        owner: names the run for people; None makes a name of host and process.
        waits: wait until the lease of a run that was killed has ended.

    Raises:
        PipelineError: another run is alive, or the cluster refused the run for another reason.
    """
    with (
        closing(PipelinePlanner(config.source, commits_of(config))) as planner,
        admin_of(config) as admin,
        admin_of(config) as renewing_admin,
    ):
        patience_ms = config.lease_ms + round(BEGIN_INTERVAL_S * 1000) if waits else 0
        begun = begin(
            config,
            admin,
            sink,
            take_over=take_over,
            owner=owner or run_owner(),
            patience_ms=patience_ms,
        )
        charge = ActiveRun(admin, begun, config.lease_ms)
        interval_s = config.lease_ms / 1000 / RENEWALS_PER_LEASE
        with ended(charge), LeaseRenewal(charge, renewing_admin, interval_s, cancel):
            yield charge, planner


def run_owner() -> str:
    """Return a name for a run: its host, its process, and a number that no other run has."""
    return f"{socket.gethostname()} process {os.getpid()} {secrets.token_hex(4)}"


def admin_of(config: PipelineConfig) -> AdminClient:
    """Return an admin client of the pipeline's cluster; close it."""
    connection = config.source.reading.connection
    return AdminClient(
        connection.bootstrap_servers,
        client_id=f"quorate-pipeline-{config.name}",
        options=security_options(config),
    )


def commits_of(config: PipelineConfig) -> StreamCommits | None:
    """Return what commits the offsets to a consumer group, beside the cluster's own record."""
    reading = config.source.reading
    return None if reading.commits is None else StreamCommits(reading.connection, reading.commits)


def begin(
    config: PipelineConfig,
    admin: AdminClient,
    sink: str,
    *,
    take_over: bool,
    owner: str,
    patience_ms: int,
) -> Pipeline:
    """Begin a run that is in charge.

    If an earlier run was killed, wait until its lease has ended.

    Raises:
        PipelineError: another run is alive, or the cluster refused the run for another reason.
    """
    deadline = time.monotonic() + patience_ms / 1000
    while True:
        try:
            return admin.begin_pipeline_run(
                config.name, owner=owner, lease_ms=config.lease_ms, sink=sink, take_over=take_over
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
