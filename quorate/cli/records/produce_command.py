"""``quorate produce``: sends lines of standard input as records, through confluent-kafka."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

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
    _report(delivery, topic, as_json=as_json)
    if delivery.interrupted:
        raise KeyboardInterrupt
    return 1 if delivery.failed or delivery.bad_line else 0


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
