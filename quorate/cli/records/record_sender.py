"""Sends records through confluent-kafka, and counts what becomes of them."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.kafka_errors import Troubles, explained
from quorate.cli.records.line_records import BadLine, LineRecord
from quorate.cli.records.refused_records import RefusedRecord, is_refusal

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

POLL_EVERY_RECORDS: Final = 1_000
FLUSH_AFTER_CTRL_C_S: Final = 10.0
PROGRESS_INTERVAL_S: Final = 0.5

Progress = Callable[["Delivery"], None]
"""Shows how far the command is; called every half second or less often."""


@dataclass
class Delivery:
    """Counts the records that were delivered, and keeps the first failure."""

    produced: int = 0
    acknowledged: int = 0
    failed: int = 0
    first_error: str = ""
    interrupted: bool = False
    bad_line: str = ""
    """Why reading ended before the input did; empty if it did not."""

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

    @property
    def summary(self) -> str:
        unknown = self.produced - self.acknowledged - self.failed
        more = f", {unknown} were still under way" if unknown else ""
        return f"{self.acknowledged} of {self.produced} records acknowledged{more}"


class RecordSender:
    """Sends records to one topic."""

    def __init__(self, config: dict[str, object], topic: str, partition: int) -> None:
        """``partition`` is -1 for any partition, or by the key.

        Raises:
            click.ClickException: librdkafka does not accept the configuration.
        """
        self._topic = topic
        self._partition = partition
        self._troubles = Troubles()
        self._producer = _open({**config, "error_cb": self._troubles})
        self._shown_s = 0.0
        self.refused: RefusedRecord | None = None
        """The first record with which a broker found something wrong."""

    def send(self, records: Iterable[LineRecord], progress: Progress, *, at_once: bool) -> Delivery:
        """Send all records, and wait for their acknowledgements; with ``at_once``, after each.

        It ends early at Ctrl-C and at a bad line, after what was sent before is delivered.
        """
        delivery = Delivery()
        try:
            self._send(records, delivery, progress, at_once=at_once)
            self._producer.flush()
        except BadLine as bad:
            delivery.bad_line = bad.message
            self._producer.flush()
        except KeyboardInterrupt:
            delivery.interrupted = True
            self._producer.flush(FLUSH_AFTER_CTRL_C_S)
        delivery.explain_by(self._troubles)
        return delivery

    def _send(
        self,
        records: Iterable[LineRecord],
        delivery: Delivery,
        progress: Progress,
        *,
        at_once: bool,
    ) -> None:
        for record in records:
            self._send_one(record, delivery)
            delivery.on_produced()
            if at_once:
                self._producer.flush()
            elif delivery.produced % POLL_EVERY_RECORDS == 0:
                self._producer.poll(0)
                self._show(delivery, progress)

    def _send_one(self, record: LineRecord, delivery: Delivery) -> None:
        """Pass one record to the producer; wait while the producer's queue is full."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    self._partition,
                    on_delivery=partial(self._delivered, delivery, delivery.produced + 1),
                    headers=list(record.headers),
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(
        self, delivery: Delivery, number: int, error: "KafkaError | None", message: "Message"
    ) -> None:
        delivery.on_delivery(error, message)
        if error is not None and self.refused is None and is_refusal(error):
            self.refused = RefusedRecord(number, message.key(), message.value())

    def _show(self, delivery: Delivery, progress: Progress) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_INTERVAL_S:
            self._shown_s = now_s
            progress(delivery)


def _open(config: dict[str, object]) -> "Producer":
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer(config)
    except KafkaException as error:
        raise click.ClickException(f"--producer-property: {error.args[0].str()}") from error
