"""``quorate tables run``: one process of a table service."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from quorate.cli.output import echo
from quorate.cli.table_service.service_options import (
    needs_tables,
    service_config,
    service_options,
)


@click.command()
@service_options
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark reads and writes large batches: local[2], spark://host:7077, yarn, k8s://…; "
    "executors on other machines need the quorate wheel. It goes before tables.master.",
)
@click.option(
    "--exit-with-parent", is_flag=True, hidden=True, help="Stop when the standard input is closed."
)
def run(
    file: Path | None,
    settings: tuple[str, ...],
    master: str | None,
    exit_with_parent: bool,
    bootstrap_server: str | None,
    data: Path | None,
) -> None:
    """Keep the tables of all topics that say table.format, until interrupted.

    Several processes share the tables, and take over those of one that is killed.

    \b
    Example:
      quorate tables run --set tables.warehouse=/data/lake
      quorate tables run --config tables.toml --bootstrap-server broker1:9092
      quorate tables run --config tables.toml --master spark://host:7077 --set spark.cores.max=8
    """
    if master is not None:
        settings = (*settings, f"tables.master={master}")
    config = service_config(file, settings, bootstrap_server, data)
    with needs_tables():
        from quorate.common.metrics.metrics_endpoint import metrics_listener
        from quorate.tables.service.table_metrics import serve_metrics
        from quorate.tables.service.table_service import TableService

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    service = TableService(config)

    def stop(signal_number: int, frame: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    if exit_with_parent:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    if (listener := metrics_listener(config.metrics_listener)) is not None:
        serve_metrics(service, listener)
    echo(f"keeping tables as {config.service_id}", err=True)
    service.run()


def _stop_at_end_of_input() -> None:
    # Not by the buffered reader: its lock is held while it waits, and Python wants it at the end.
    while os.read(sys.stdin.fileno(), 1024):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
