"""``quorate consume``: prints records of a topic through confluent-kafka, without a consumer
group."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.kafka_errors import Troubles, explained
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    kafka_options,
    key_values,
    resolve_bootstrap,
)
from quorate.common.escaping import json_text

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

EARLIEST: Final = -2
LATEST: Final = -1
"""librdkafka's numbers for the beginning and the end of a log."""

METADATA_TIMEOUT_S: Final = 10.0
POLL_TIMEOUT_S: Final = 0.1
BATCH_RECORDS: Final = 500


@click.command()
@cluster_options
@click.option("--topic", required=True, help="Topic to consume.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Only consume this partition. Default: all partitions.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the first available record.")
@click.option(
    "--offset",
    metavar="N|earliest|latest",
    help="Offset to start at; a number needs --partition. Default: latest.",
)
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    help="Stop when no record has arrived for this long. Default: wait until Ctrl-C.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(("read_committed", "read_uncommitted")),
    default="read_committed",
    show_default=True,
    help="read_committed shows the records of a transaction only after it is committed; "
    "read_uncommitted shows all records.",
)
@click.option("--key-separator", metavar="TEXT", help="Print the key and TEXT before the value.")
@click.option(
    "--consumer-property", "properties", multiple=True, metavar="KEY=VALUE",
    help="A configuration value of librdkafka.",
)  # fmt: skip
@json_option
def consume(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    partition: int | None,
    from_beginning: bool,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    key_separator: str | None,
    properties: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the records of a topic, one per line; --json prints one object per line.

    \b
    Example:
      quorate consume --topic events --from-beginning --timeout-ms 2000
      quorate consume --topic events --partition 0 --offset 100 --max-messages 10 --json
    """
    start = start_offset(from_beginning, offset, partition)
    config = {
        "bootstrap.servers": resolve_bootstrap(bootstrap_server, data),
        **kafka_options(),
        "client.id": "quorate-consume",
        "group.id": "quorate-consume",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        "log_level": 0,
        **key_values(properties, "--consumer-property"),
    }
    separator = key_separator.encode() if key_separator is not None else None
    stop = StopRule(max_messages, timeout_ms)
    troubles = Troubles()
    with closing(_open({**config, "error_cb": troubles})) as consumer:
        _assign(consumer, topic, partition, start, troubles)
        for batch in _batches(consumer, stop):
            for message in batch:
                line = as_json_line(message) if as_json else as_line(message, separator)
                sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()


def start_offset(from_beginning: bool, offset: str | None, partition: int | None) -> int:
    """Return the offset to start at, or librdkafka's number for earliest (-2) or latest (-1).

    Raises:
        click.UsageError: the options contradict each other, or the offset is malformed.
    """
    if from_beginning and offset is not None:
        raise click.UsageError("give --from-beginning or --offset, not both")
    if from_beginning or offset == "earliest":
        return EARLIEST
    if offset is None or offset == "latest":
        return LATEST
    if not offset.isdecimal():
        raise click.UsageError(f"--offset {offset}: must be a number, earliest or latest")
    if partition is None:
        raise click.UsageError(f"--offset {offset} needs --partition: every partition counts anew")
    return int(offset)


@dataclass(frozen=True)
class StopRule:
    """Decides when to stop: after a number of records, or after a time without any; None means
    never."""

    max_messages: int | None
    timeout_ms: int | None


def as_line(message: "Message", separator: bytes | None) -> bytes:
    """Format the value, with key and separator before it if a separator is given; null is empty."""
    value = message.value() or b""
    return value if separator is None else (message.key() or b"") + separator + value


def as_json_line(message: "Message") -> bytes:
    """Format the record as one JSON object; bytes that are not UTF-8 become replacement
    characters."""
    timestamp: tuple[int, int] = message.timestamp()
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp[1] if timestamp[0] else None,
        "key": _text(message.key()),
        "value": _text(message.value()),
    }
    if headers := message.headers():
        document["headers"] = [[header[0], _text(header[1])] for header in headers]
    return json_text(document, ensure_ascii=False).encode()


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _open(config: dict[str, object]) -> "Consumer":
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(config)
    except KafkaException as error:
        raise click.ClickException(f"--consumer-property: {error.args[0].str()}") from error


def _assign(
    consumer: "Consumer", topic: str, partition: int | None, start: int, troubles: Troubles
) -> None:
    """Assign the partitions by hand, without a group and its coordinator."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        found = consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        consumer.poll(0)  # Has the troubles told.
        why = troubles.with_last(error.args[0].str())
        raise click.ClickException(
            f"no metadata of topic {topic!r}: {why}: check that the brokers of --bootstrap-server "
            "are up, and what --command-config says if they ask for a login or TLS"
        ) from error
    if found.error is not None:
        why = explained(found.error, "Describe", topic)
        raise click.ClickException(
            f"topic {topic!r}: {why}; `quorate topics list` shows those there are"
        )
    if partition is not None and partition not in found.partitions:
        raise click.ClickException(
            f"topic {topic!r} has no partition {partition}: "
            f"it has {len(found.partitions)}, from 0 to {len(found.partitions) - 1}"
        )
    numbers = sorted(found.partitions) if partition is None else [partition]
    consumer.assign([TopicPartition(topic, number, start) for number in numbers])


def _batches(consumer: "Consumer", stop: StopRule) -> "Iterator[list[Message]]":
    count, last_record = 0, time.monotonic()
    while stop.max_messages is None or count < stop.max_messages:
        wanted = min(BATCH_RECORDS, (stop.max_messages or sys.maxsize) - count)
        polled = consumer.consume(wanted, POLL_TIMEOUT_S)
        batch = [message for message in polled if not _is_error(message)]
        now = time.monotonic()
        if batch:
            count, last_record = count + len(batch), now
            yield batch
        elif stop.timeout_ms is not None and (now - last_record) * 1000 >= stop.timeout_ms:
            return


def _is_error(message: "Message") -> bool:
    """Return whether the message is an error from which librdkafka recovers by itself.

    Raises:
        click.ClickException: the error ends the command.
    """
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        return False
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise click.ClickException(
            f"partition {message.topic()}-{message.partition()}: {error.str()}: "
            f"start within the log with --offset, or --from-beginning"
        )
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return True  # Partitions are assigned by hand: no group is needed.
    if error.fatal() or error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ):
        topic = message.topic() or ""
        raise click.ClickException(f"topic {topic!r}: {explained(error, 'Read', topic)}")
    echo(f"quorate: {error.str()}", err=True)
    return True
