"""``quorate produce``: sends lines of standard input as records, through confluent-kafka."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.kafka_errors import Troubles, explained
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    kafka_options,
    key_values,
    print_json,
    resolve_bootstrap,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

POLL_EVERY_RECORDS: Final = 1_000


@dataclass
class Delivery:
    """Counts the records that were delivered, and keeps the first failure."""

    produced: int = 0
    acknowledged: int = 0
    failed: int = 0
    first_error: str = ""

    def on_produced(self) -> None:
        """Count a record that is passed to the producer."""
        self.produced += 1

    def explain_by(self, troubles: Troubles) -> None:
        """Add the last connection error to the first failure, which it may explain."""
        self.first_error = troubles.with_last(self.first_error)

    def on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            self.acknowledged += 1
            return
        self.failed += 1
        self.first_error = self.first_error or explained(error, "Write", message.topic() or "")


@click.command()
@cluster_options
@click.option("--topic", required=True, help="Topic to produce to.")
@click.option("--key-separator", metavar="TEXT", help="Text between key and value in each line.")
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
    partition: int | None,
    acks: str,
    compression_type: str,
    properties: tuple[str, ...],
    timeout_ms: int,
    as_json: bool,
) -> int:
    """Produce each line of standard input as a record.

    \b
    Example:
      printf 'k1:v1\\nk2:v2\\n' | quorate produce --topic events --key-separator :
    """
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    config = {
        "bootstrap.servers": resolve_bootstrap(bootstrap_server, data),
        **kafka_options(),
        "client.id": "quorate-produce",
        "acks": acks,
        "compression.type": compression_type,
        "message.timeout.ms": timeout_ms,
        "linger.ms": 5,
        "log_level": 0,
        **key_values(properties, "--producer-property"),
    }
    records = split_lines(sys.stdin.buffer, key_separator.encode() if key_separator else None)
    delivery = _produce_all(config, topic, -1 if partition is None else partition, records)
    if as_json:
        print_json(asdict(delivery))
    else:
        echo(f"{delivery.acknowledged} of {delivery.produced} records acknowledged", err=True)
    if delivery.failed:
        echo(
            f"quorate: {delivery.failed} records for topic {topic!r} were not delivered: "
            f"{delivery.first_error}",
            err=True,
        )
    return 1 if delivery.failed else 0


def split_lines(
    lines: Iterable[bytes], separator: bytes | None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield key and value of each line; without a separator the key is None.

    Raises:
        click.ClickException: a line lacks the separator.
    """
    for number, line in enumerate(lines, 1):
        content = line.removesuffix(b"\n")
        if separator is None:
            yield None, content
            continue
        key, found, value = content.partition(separator)
        if not found:
            raise click.ClickException(
                f"line {number} has no key separator {separator.decode()!r}: "
                f"{content[:80].decode(errors='replace')!r}"
            )
        yield key, value


def _produce_all(
    config: dict[str, object],
    topic: str,
    partition: int,
    records: Iterable[tuple[bytes | None, bytes]],
) -> Delivery:
    from confluent_kafka import KafkaException, Producer

    troubles = Troubles()
    try:
        producer = Producer({**config, "error_cb": troubles})
    except KafkaException as error:
        raise click.ClickException(f"--producer-property: {error.args[0].str()}") from error
    delivery = Delivery()
    try:
        for key, value in records:
            delivery.on_produced()
            _produce_one(producer, topic, partition, key, value, delivery.on_delivery)
            if delivery.produced % POLL_EVERY_RECORDS == 0:
                producer.poll(0)
    finally:
        producer.flush()
    delivery.explain_by(troubles)
    return delivery


def _produce_one(
    producer: "Producer",
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes,
    on_delivery: "Callable[[KafkaError | None, Message], None]",
) -> None:
    """Pass one record to the producer; wait while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            return
