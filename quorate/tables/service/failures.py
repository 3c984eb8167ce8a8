"""Records in the quorum why a table stands still."""

import logging
import time

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.client.results import Pipeline
from quorate.tables.service.run_owners import (
    ERROR_LENGTH_MAX,
    RunOwner,
    TableFailure,
    failure_of,
    parse_owner,
)

_logger = logging.getLogger(__name__)


def record_failure(
    admin: AdminClient, pipeline: str, state: Pipeline | None, error: str, run_name: str
) -> None:
    """Record why the last run of a table has failed, if nobody has begun another one.

    It is recorded as a run that ends at once, so only the process in charge can tell. An error that
    stays the same is recorded once.

    Args:
        admin: the client of the cluster.
        pipeline: the pipeline of the table.
        state: what the quorum knows of it; None if nothing.
        error: what has happened.
        run_name: names this process, and tells the run from others.
    """
    error = error[:ERROR_LENGTH_MAX]
    known = None if state is None else failure_of(state, None)
    is_told = state is not None and not parse_owner(state.owner).tries_again
    if is_told and known is not None and known.error == error:
        return
    since_ms = time.time_ns() // 1_000_000 if known is None else known.since_ms
    owner = RunOwner(run_name, TableFailure(since_ms, error))
    try:
        admin.begin_pipeline_run(
            pipeline,
            owner=owner.text,
            lease_ms=0,
            sink="" if state is None else state.sink,
            take_over=False,
        )
    except QuorateError as refusal:
        _logger.info("the failure of %s is not recorded: %s", pipeline, refusal)
