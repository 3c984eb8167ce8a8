"""Writes records that do not fit their schemas to another topic, each exactly once.

The records of a batch are written in one transaction, together with how far it got: the next offset
of each partition of the source, committed as a group offset. It is committed before the table is.
A run that is killed between the two reads the batch again, and finds by the offsets which records
are in the topic already. A new run also fences the producer of an earlier one, by the name that
they share.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.typed.typed_batches import BadRow
from quorate.tables.table_errors import TableUnavailable

HEADER: Final = "table.dead.letter."
TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 300_000
"""A batch takes no longer. The broker ends transactions of runs that were killed after that."""
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The limit of librdkafka itself: that of the topic is what counts."""

Open = Callable[[dict[str, Any]], Any]
"""Opens a client of confluent-kafka by its configuration."""


class DeadLetters:
    """The dead letters of one table. Any thread may call `add`; close it."""

    def __init__(
        self,
        topic: str,
        name: str,
        kafka: Mapping[str, str],
        *,
        producer: Open = Producer,
        consumer: Open = Consumer,
    ) -> None:
        """
        Args:
            topic: where they are written.
            name: the transactional id and the group, which all runs of the table share.
            kafka: how the brokers are reached, as librdkafka takes it.
            producer, consumer: open the clients.
        """
        self.topic = topic
        self._name = name
        self._kafka = {**kafka, "log_level": 0}
        self._open_producer, self._open_consumer = producer, consumer
        self._lock = threading.Lock()
        self._producer: Any = None
        self._consumer: Any = None
        self._is_begun = False
        self._written: dict[TopicPartition, int] = {}
        """The next offset that is not written, by topic and partition, as far as it is known."""
        self._moved: dict[TopicPartition, tuple[int, bytes]] = {}
        """The same after this transaction, with the id of the topic."""

    def add(self, offsets: OffsetRange, records: pa.RecordBatch, bad: Sequence[BadRow]) -> None:
        """Write the bad ones of some records, except those that are in the topic already.

        Args:
            offsets: the range that the records are of.
            records: whole records (`row_plan.WHOLE_RECORD`).
            bad: which of them are bad, and why.

        Raises:
            TableUnavailable: the topic cannot be written to.
        """
        if not bad:
            return
        partition = offsets.topic_partition
        with self._lock, self._explained():
            self._begin()
            written = self._known(partition, offsets.topic_id)
            rows = records.take([one.row for one in bad]).to_pylist()
            for row, one in zip(rows, bad, strict=True):
                if row["offset"] >= written:
                    self._produce(offsets, row, one.reason)
            after, _ = self._moved.get(partition, (written, b""))
            self._moved[partition] = (max(after, rows[-1]["offset"] + 1), offsets.topic_id)

    def commit(self) -> None:
        """Make the records of the batch visible, with how far it got.

        Raises:
            TableUnavailable: nothing was committed, or it is not known; a repeated batch finds out.
        """
        if not self._is_begun:
            return
        with self._lock, self._explained():
            positions = [
                confluent_kafka.TopicPartition(topic, number, offset, metadata=topic_id.hex())
                for (topic, number), (offset, topic_id) in sorted(self._moved.items())
            ]
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, group, TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)
            self._written |= {one: offset for one, (offset, _) in self._moved.items()}
            self._moved.clear()
            self._is_begun = False

    def abandon(self) -> None:
        """Take back what was written since the last commit."""
        with self._lock:
            if self._is_begun:
                self._forget()

    def close(self) -> None:
        """Take back what is not committed, and close the connections."""
        with self._lock:
            self._forget()

    def _begin(self) -> None:
        if self._producer is None:
            self._consumer = self._open_consumer(
                {**self._kafka, "group.id": self._name, "enable.auto.commit": False}
            )
            self._producer = self._open_producer(
                {
                    **self._kafka,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "message.max.bytes": _MESSAGE_BYTES_MAX,
                }
            )
            self._check_topic()
            self._producer.init_transactions(TIMEOUT_S)
        if not self._is_begun:
            self._producer.begin_transaction()
            self._is_begun = True

    def _check_topic(self) -> None:
        found = self._producer.list_topics(self.topic, TIMEOUT_S).topics[self.topic]
        if found.error is not None:
            raise TableUnavailable(
                f"dead letters cannot be written to topic {self.topic}: {found.error.str()}"
            )

    def _known(self, partition: TopicPartition, topic_id: bytes) -> int:
        """Return the next offset of a partition whose record is not in the topic."""
        if partition not in self._written:
            asked = confluent_kafka.TopicPartition(*partition)
            [found] = self._consumer.committed([asked], TIMEOUT_S)
            if found.error is not None:
                raise KafkaException(found.error)
            is_of_this_topic = found.offset >= 0 and found.metadata == topic_id.hex()
            self._written[partition] = found.offset if is_of_this_topic else 0
        return self._written[partition]

    def _produce(self, offsets: OffsetRange, row: Mapping[str, Any], reason: str) -> None:
        topic, number = offsets.topic_partition
        about = {"topic": topic, "partition": number, "offset": row["offset"], "reason": reason}
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
        headers += [(HEADER + name, str(value).encode()) for name, value in about.items()]
        timestamp_ms = round(row["timestamp"].timestamp() * 1000)
        while True:
            try:
                self._producer.produce(
                    self.topic, row["value"], row["key"], headers=headers, timestamp=timestamp_ms
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise the errors of the clients as errors of this table, and begin anew after one."""
        try:
            yield
        except (KafkaException, TableUnavailable) as error:
            self._forget()
            if isinstance(error, TableUnavailable):
                raise
            raise TableUnavailable(
                f"dead letters cannot be written to topic {self.topic}: {error.args[0].str()}"
            ) from error

    def _forget(self) -> None:
        """Drop the clients. What is not committed is taken back, here or by the next producer."""
        producer, consumer = self._producer, self._consumer
        self._producer = self._consumer = None
        self._written.clear()
        self._moved.clear()
        if producer is not None and self._is_begun:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(TIMEOUT_S)
        self._is_begun = False
        if consumer is not None:
            consumer.close()
