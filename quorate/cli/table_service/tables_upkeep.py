"""``quorate tables compact`` and ``clean``: upkeep of a table by hand."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.output import echo
from quorate.cli.table_service.service_options import (
    needs_tables,
    service_config,
    service_options,
)

if TYPE_CHECKING:
    from quorate.tables.lake_table import LakeTable
    from quorate.tables.service.service_config import ServiceConfig

MEBIBYTE: Final = 1 << 20


@click.command()
@click.argument("topic")
@click.option(
    "--small-mb",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Files that are smaller are joined.",
)
@service_options
def compact(
    topic: str,
    small_mb: int,
    file: Path | None,
    settings: tuple[str, ...],
    bootstrap_server: str | None,
    data: Path | None,
) -> None:
    """Join the small files of a table now. The service does so by itself from time to time.

    \b
    Example:
      quorate tables compact orders
    """
    table = _opened(service_config(file, settings, bootstrap_server, data), topic)
    done = table.compact(small_mb * MEBIBYTE)
    echo(f"{topic}: {done.files_before} small files became {done.files_after}")


@click.command()
@click.argument("topic")
@click.option(
    "--older-than-hours",
    type=click.IntRange(min=0),
    default=72,
    show_default=True,
    help="Snapshots and lost files that are younger are kept. A file that is being written is lost "
    "in this sense, so no writer may be slower.",
)
@service_options
def clean(
    topic: str,
    older_than_hours: int,
    file: Path | None,
    settings: tuple[str, ...],
    bootstrap_server: str | None,
    data: Path | None,
) -> None:
    """Forget old snapshots of a table, and delete files that no snapshot knows.

    \b
    Example:
      quorate tables clean orders --older-than-hours 24
    """
    table = _opened(service_config(file, settings, bootstrap_server, data), topic)
    older_than_ms = time.time_ns() // 1_000_000 - older_than_hours * 3_600_000
    expired = table.expire(older_than_ms).snapshots_expired
    deleted = table.remove_orphans(older_than_ms).orphans_deleted
    echo(f"{topic}: {expired} snapshots expired, {deleted} lost files deleted")


def _opened(service: "ServiceConfig", topic: str) -> "LakeTable":
    with needs_tables():
        from quorate.client.admin import AdminClient
        from quorate.tables.open_table import open_table
        from quorate.tables.service.table_topics import pipeline_config, table_topics
        from quorate.tables.table_errors import TableError

    import pyarrow as pa

    with AdminClient(
        service.bootstrap_servers, client_id="quorate-cli", options=dict(service.security)
    ) as admin:
        found = table_topics(admin, [topic])
        if not found:
            raise TableError(f"topic {topic} has no table: its table.format is empty")
        if not any(one.topics for one in admin.describe_pipelines([found[0].pipeline])):
            raise TableError(f"the table of {topic} has had no run so far")
    config = pipeline_config(found[0], service)
    assert config.table is not None
    return open_table(config.table, config.name, pa.schema([]))
