"""``quorate produce``: sends lines of standard input as records, through confluent-kafka."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.output import echo, echo_over
from quorate.cli.reachable import require_reachable
from quorate.cli.records.line_input import input_lines, is_typed
from quorate.cli.records.line_records import LineFormat, line_records, parse_headers
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    kafka_options,
    key_values,
    print_json,
    resolve_bootstrap,
)

if TYPE_CHECKING:
    from quorate.cli.records.record_sender import Delivery

_LOOK_TIMEOUT_MS: Final = 10_000


@click.command()
@cluster_options
@click.option("--topic", required=True, help="Topic to produce to.")
@click.option("--key-separator", metavar="TEXT", help="Text between key and value in each line.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE",
    help="A header of every record; may be given repeatedly.",
)  # fmt: skip
@click.option(
    "--parse-headers",
    "parse_headers_",
    is_flag=True,
    help="Each line begins with headers of its own, as name:value,name:value and a tab.",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Partition to produce to. Default: by key, or any partition.",
)
@click.option(
    "--acks", type=click.Choice(["all", "-1", "1", "0"]), default="all", show_default=True,
    help="Acknowledgements to wait for: 0, 1 (the leader) or all (the in-sync replicas).",
)  # fmt: skip
@click.option(
    "--compression-type",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression codec of the batches.",
)
@click.option(
    "--producer-property", "properties", multiple=True, metavar="KEY=VALUE",
    help="A configuration value of librdkafka.",
)  # fmt: skip
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=60_000,
    show_default=True,
    help="How long to try to deliver each record.",
)
@json_option
def produce(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    parse_headers_: bool,
    partition: int | None,
    acks: str,
    compression_type: str,
    properties: tuple[str, ...],
    timeout_ms: int,
    as_json: bool,
) -> int:
    """Produce each line of standard input as a record.

    At a terminal each line is sent when it is typed; Ctrl-D ends the input.

    \b
    Example:
      printf 'k1:v1\\nk2:v2\\n' | quorate produce --topic events --key-separator :
      quorate produce --topic events --header source=me < lines.txt
    """
    from quorate.cli.records.record_sender import RecordSender
    from quorate.cli.records.refused_records import why_refused

    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    form = LineFormat(
        key_separator.encode() if key_separator else None, parse_headers_, parse_headers(headers)
    )
    bootstrap = resolve_bootstrap(bootstrap_server, data)
    config = {
        "bootstrap.servers": bootstrap,
        **kafka_options(),
        "client.id": "quorate-produce",
        "acks": acks,
        "compression.type": compression_type,
        "message.timeout.ms": timeout_ms,
        "linger.ms": 5,
        "log_level": 0,
        **key_values(properties, "--producer-property"),
    }
    require_reachable(bootstrap)
    sender = RecordSender(config, topic, -1 if partition is None else partition)
    delivery = sender.send(line_records(input_lines(), form), _show_progress, at_once=is_typed())
    if sender.refused is not None:
        configs = _validation_of(bootstrap_server, data, topic)
        delivery.first_error = why_refused(sender.refused, topic, configs)
    _report(delivery, topic, as_json=as_json)
    if delivery.interrupted:
        raise KeyboardInterrupt
    return 1 if delivery.failed or delivery.bad_line else 0


def _validation_of(bootstrap_server: str | None, data: Path | None, topic: str) -> dict[str, str]:
    """Return what the topic validates. It is empty if that is not to be had: the summary of what
    was written matters more."""
    from quorate.cli.admin_session import open_admin
    from quorate.cli.records.refused_records import validation_of
    from quorate.client.bootstrap import BootstrapError

    try:
        with open_admin(bootstrap_server, data, _LOOK_TIMEOUT_MS) as admin:
            return validation_of(admin, topic)
    except (click.ClickException, BootstrapError):
        return {}


def _show_progress(delivery: "Delivery") -> None:
    echo_over(f"{delivery.acknowledged:,} of {delivery.produced:,} acknowledged")


def _report(delivery: "Delivery", topic: str, *, as_json: bool) -> None:
    echo_over("")
    if as_json:
        print_json(asdict(delivery))
    else:
        echo(delivery.summary, err=True)
    if delivery.failed:
        echo(
            f"quorate: {delivery.failed} records for topic {topic!r} were not delivered: "
            f"{delivery.first_error}",
            err=True,
        )
    if delivery.bad_line:
        echo(
            f"quorate: {delivery.bad_line}; the {delivery.acknowledged} records before it are "
            "written, this line and those after it are not",
            err=True,
        )
