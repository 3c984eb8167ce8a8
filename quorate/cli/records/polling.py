"""Polls a consumer until a rule says to stop."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.kafka_errors import explained
from quorate.cli.output import echo

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_TIMEOUT_S: Final = 0.1
BATCH_RECORDS: Final = 500


@dataclass(frozen=True)
class StopRule:
    """Decides when to stop: after a number of records, after a time without any, or at the end of
    every partition that is read; None means never."""

    max_messages: int | None
    timeout_ms: int | None
    at_end: bool = False


class PartitionEnds:
    """The partitions whose end has been reached, and not left again."""

    def __init__(self) -> None:
        self._ended: set[tuple[str, int]] = set()

    def reached(self, message: "Message") -> None:
        self._ended.add(_partition(message))

    def left(self, message: "Message") -> None:
        self._ended.discard(_partition(message))

    def are_all_of(self, consumer: "Consumer") -> bool:
        """Return whether the consumer has partitions, and is at the end of each."""
        assigned = {(one.topic, one.partition) for one in consumer.assignment()}
        return bool(assigned) and assigned <= self._ended


def _partition(message: "Message") -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def batches(consumer: "Consumer", stop: StopRule, *, in_group: bool) -> "Iterator[list[Message]]":
    """Yield records as they arrive, in batches without errors.

    Without ``in_group`` partitions were assigned by hand, which needs no right on a group.

    Raises:
        click.ClickException: an error ends the command.
    """
    count, last_record, ends = 0, time.monotonic(), PartitionEnds()
    while stop.max_messages is None or count < stop.max_messages:
        wanted = min(BATCH_RECORDS, (stop.max_messages or sys.maxsize) - count)
        polled = consumer.consume(wanted, POLL_TIMEOUT_S)
        batch = [message for message in polled if not _is_error(message, ends, in_group=in_group)]
        now = time.monotonic()
        if batch:
            count, last_record = count + len(batch), now
            yield batch
        if stop.at_end and ends.are_all_of(consumer):
            return
        if stop.timeout_ms is not None and (now - last_record) * 1000 >= stop.timeout_ms:
            return


def _is_error(message: "Message", ends: PartitionEnds, *, in_group: bool) -> bool:
    """Return whether the message is an error from which librdkafka recovers by itself, or the end
    of a partition.

    Raises:
        click.ClickException: the error ends the command.
    """
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        ends.left(message)
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        ends.reached(message)
        return True
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise click.ClickException(
            f"partition {message.topic()}-{message.partition()}: {error.str()}: "
            f"start within the log with --offset, or --from-beginning"
        )
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        if in_group:
            raise click.ClickException(f"{error.str()}: `quorate acls --add --group …` lets you")
        return True
    if error.fatal() or error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ):
        topic = message.topic() or ""
        raise click.ClickException(f"topic {topic!r}: {explained(error, 'Read', topic)}")
    echo(f"quorate: {error.str()}", err=True)
    return True
