"""What is known of tables without asking the processes that keep them."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quorate.client.admin import AdminClient
from quorate.client.results import Pipeline
from quorate.common.table_keys import TABLE_FORMAT
from quorate.pipeline.pipeline_positions import pipeline_lags
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.tables.service.run_owners import failure_of, parse_owner
from quorate.tables.service.table_topics import TableTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table."""

    topic: str
    format: str
    state: str
    """``failing``, ``paused``, ``kept`` by a process, ``waiting`` for one, or ``new``."""
    owner: str
    sink: str
    rows: int
    lag: int | None
    """How many offsets are not in the table; None if it has not begun."""
    lag_s: float | None
    """The time since the last commit if records wait, 0 if none waits; None if not begun."""
    error: str
    """Why it stands still; empty if it does not."""
    failing_since_ms: int | None
    """The time at which the first run failed after the last success, in ms since 1970."""
    partitions: tuple[tuple[int, int, int | None], ...]
    """Partition, first offset that is not in the table, end of the log."""

    def as_document(self) -> dict[str, Any]:
        """Return the status as JSON has it."""
        document = asdict(self)
        document["partitions"] = [
            {"partition": number, "committed": committed, "end": end}
            for number, committed, end in self.partitions
        ]
        return document


def table_statuses(
    admin: AdminClient, connection: ConnectionOptions, tables: Sequence[TableTopic]
) -> list[TableStatus]:
    """Return the status of each table, in the order given."""
    names = [one.pipeline for one in tables]
    states = {one.name: one for one in admin.describe_pipelines(names)} if names else {}
    return [_status(connection, one, states.get(one.pipeline)) for one in tables]


def _status(
    connection: ConnectionOptions, table: TableTopic, state: Pipeline | None
) -> TableStatus:
    lags = [] if state is None else pipeline_lags(connection, state)
    lag = sum(one.lag or 0 for one in lags) if lags else None
    lag_s = None
    if state is not None and lag is not None:
        lag_s = max(time.time() - state.committed_ms / 1000, 0.0) if lag else 0.0
    failure = None if state is None else failure_of(state, lag)
    return TableStatus(
        topic=table.topic,
        format=table.configuration[TABLE_FORMAT],
        state=_state(table, state, is_failing=failure is not None),
        owner=_process(state, is_failing=failure is not None),
        error="" if failure is None else failure.error,
        failing_since_ms=None if failure is None else failure.since_ms,
        sink="" if state is None else state.sink,
        rows=0 if state is None else state.rows,
        lag=lag,
        lag_s=lag_s,
        partitions=tuple((one.partition.partition, one.committed, one.end) for one in lags),
    )


def _process(state: Pipeline | None, *, is_failing: bool) -> str:
    """Return the process that keeps the table, or tells why it stands still."""
    if state is None or not (state.alive or is_failing):
        return ""
    return parse_owner(state.owner).process


def _state(table: TableTopic, state: Pipeline | None, *, is_failing: bool) -> str:
    if is_failing and not table.is_paused:
        return "failing"
    if state is not None and state.alive:
        return "kept"
    if table.is_paused:
        return "paused"
    return "new" if state is None else "waiting"
