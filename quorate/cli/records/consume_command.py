"""``quorate consume``: prints records of a topic through confluent-kafka, as a member of a consumer
group or without one."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.kafka_errors import Troubles, explained
from quorate.cli.reachable import require_reachable
from quorate.cli.records.polling import StopRule, batches
from quorate.cli.records.record_output import JSON, OUTPUTS, RAW, line_format
from quorate.cli.records.start_positions import EARLIEST, start_offset
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    kafka_options,
    key_values,
    resolve_bootstrap,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

METADATA_TIMEOUT_S: Final = 10.0
WITHOUT_GROUP: Final = "quorate-consume"
"""The group id that librdkafka wants although nothing is committed."""


@click.command()
@cluster_options
@click.option("--topic", required=True, help="Topic to consume.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="Only consume this partition. Default: all partitions.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Consume as a member of this group: it shares the partitions with the other members, "
    "starts at the committed offsets, and commits what it has printed.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the first available record; with --group, where nothing is committed.",
)
@click.option(
    "--offset",
    metavar="N|-N|earliest|latest",
    help="Offset to start at, which needs --partition; -N starts N records before the end of each "
    "partition. Default: latest.",
)
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    help="Stop when no record has arrived for this long. Default: wait until Ctrl-C.",
)
@click.option(
    "--exit-eof", is_flag=True, help="Stop at the end of all partitions that are consumed."
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
    "--headers",
    "with_headers",
    is_flag=True,
    help="Print the headers first, as name:value,name:value and a tab.",
)
@click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    default=RAW,
    show_default=True,
    help="How records are printed: raw bytes, hex or base64, one record per line, or JSON objects, "
    "which have base64 where bytes are no UTF-8. --json means --output json.",
)
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
    group: str | None,
    from_beginning: bool,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    exit_eof: bool,
    isolation_level: str,
    key_separator: str | None,
    with_headers: bool,
    output: str,
    properties: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the records of a topic, one per line; --json prints one object per line.

    \b
    Example:
      quorate consume --topic events --from-beginning --exit-eof
      quorate consume --topic events --offset -10 --output hex
      quorate consume --topic events --group billing --json
      quorate consume --topic events --partition 0 --offset 100 --max-messages 10 --json
    """
    start = start_offset(from_beginning, offset, partition, group)
    bootstrap = resolve_bootstrap(bootstrap_server, data)
    config = {
        "bootstrap.servers": bootstrap,
        **kafka_options(),
        "client.id": "quorate-consume",
        "isolation.level": isolation_level,
        "enable.partition.eof": exit_eof,
        "log_level": 0,
        **_group_settings(group, start),
        **key_values(properties, "--consumer-property"),
    }
    separator = key_separator.encode() if key_separator is not None else None
    line = line_format(JSON if as_json else output, separator, with_headers=with_headers)
    stop = StopRule(max_messages, timeout_ms, exit_eof)
    troubles = Troubles()
    require_reachable(bootstrap)
    with closing(_open({**config, "error_cb": troubles})) as consumer:
        if group is None:
            _assign(consumer, topic, partition, start, troubles)
        else:
            _require_topic(consumer, topic, troubles)
            consumer.subscribe([topic])
        for batch in batches(consumer, stop, in_group=group is not None):
            for message in batch:
                sys.stdout.buffer.write(line(message) + b"\n")
            sys.stdout.buffer.flush()
            if group is not None:
                _note_printed(consumer, batch)


def _group_settings(group: str | None, start: int) -> dict[str, object]:
    if group is None:
        return {
            "group.id": WITHOUT_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    return {
        "group.id": group,
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if start == EARLIEST else "latest",
    }


def _note_printed(consumer: "Consumer", batch: "list[Message]") -> None:
    """Have the records of a batch committed, now that they are printed."""
    from confluent_kafka import KafkaException

    last = {(message.topic(), message.partition()): message for message in batch}
    for message in last.values():
        try:
            consumer.store_offsets(message)
        except KafkaException:
            # The partition has moved to another member, which prints these records again.
            continue


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
    from confluent_kafka import TopicPartition

    partitions = _require_topic(consumer, topic, troubles)
    if partition is not None and partition not in partitions:
        raise click.ClickException(
            f"topic {topic!r} has no partition {partition}: "
            f"it has {len(partitions)}, from 0 to {len(partitions) - 1}"
        )
    numbers = partitions if partition is None else [partition]
    consumer.assign([TopicPartition(topic, number, start) for number in numbers])


def _require_topic(consumer: "Consumer", topic: str, troubles: Troubles) -> list[int]:
    """Return the partitions of the topic.

    Raises:
        click.ClickException: there is no such topic, or no broker answers.
    """
    from confluent_kafka import KafkaException

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
    return sorted(found.partitions)
