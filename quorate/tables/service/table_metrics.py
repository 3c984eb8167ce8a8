"""Figures of a table service for Prometheus."""

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from quorate.common.metrics.family import Family, MetricKind, Metrics, Sample
from quorate.common.metrics.metrics_endpoint import MetricsEndpoint
from quorate.common.types import Endpoint
from quorate.tables.service.table_service import TableService


def _family(name: str, kind: MetricKind, doc: str) -> Family:
    return Family(f"quorate_table_{name}", kind, "table-service", name, doc, ("topic",))


LAG_OFFSETS: Final = _family(
    "lag_offsets", MetricKind.GAUGE, "Offsets that were not in the table at the last look."
)
LAG_SECONDS: Final = _family(
    "lag_seconds",
    MetricKind.GAUGE,
    "An upper bound of the age of the oldest record that is not in the table; 0 if there is none.",
)
ROWS: Final = _family("rows_total", MetricKind.COUNTER, "Rows that this process has committed.")
COMMITS: Final = _family("commits_total", MetricKind.COUNTER, "Commits that this process has made.")
FILES: Final = _family(
    "files_total", MetricKind.COUNTER, "Data files that this process has written."
)
FAILED: Final = _family(
    "failed", MetricKind.GAUGE, "1 while the table stands still because of an error."
)


def samples(service: TableService) -> Iterator[Sample]:
    """Yield the figures of all tables of a process."""
    now_s = time.time()
    for topic, one in sorted(service.figures().items()):
        yield Sample(LAG_OFFSETS, one.waiting, (topic,))
        yield Sample(LAG_SECONDS, one.lag_s(now_s), (topic,))
        yield Sample(ROWS, one.summary.rows, (topic,))
        yield Sample(COMMITS, one.summary.batches, (topic,))
        yield Sample(FILES, one.summary.files, (topic,))
        yield Sample(FAILED, 1 if one.error else 0, (topic,))


def serve_metrics(service: TableService, listener: Endpoint) -> Endpoint:
    """Serve the figures from a thread of their own, until the process ends.

    Raises:
        OSError: the address cannot be used.
    """
    metrics = Metrics()
    metrics.add(lambda: samples(service))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="metrics", daemon=True).start()
    endpoint = MetricsEndpoint(metrics.gathered, partial(_why_unready, service))
    return asyncio.run_coroutine_threadsafe(endpoint.start(listener), loop).result()


async def _why_unready(service: TableService) -> str:
    """Name the tables that stand still; a process whose tables all go on is ready."""
    failed = [topic for topic, one in sorted(service.figures().items()) if one.error]
    return f"tables stand still: {', '.join(failed)}" if failed else ""
