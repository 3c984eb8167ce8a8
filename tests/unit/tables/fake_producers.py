"""A Kafka cluster in memory for `DeadLetters`: transactions, group offsets, fencing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException


@dataclass
class FakeKafka:
    """What producers have committed, and group offsets."""

    records: list[SimpleNamespace] = field(default_factory=list)
    offsets: dict[tuple[str, int], tuple[int, str | None]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=lambda: {"dead"})
    lost_answers: int = 0
    """Commits that are carried out although the producer hears an error."""
    queue: int = 1_000
    """How many records a producer takes until it is polled for a while."""

    def producer(self, config: Mapping[str, Any]) -> "FakeProducer":
        """Open a producer."""
        return FakeProducer(self, config["transactional.id"])

    def consumer(self, config: Mapping[str, Any]) -> "FakeConsumer":
        """Open a consumer."""
        return FakeConsumer(self)


class FakeProducer:
    """One producer of a transactional id; a later one fences it."""

    def __init__(self, kafka: FakeKafka, name: str) -> None:
        self._kafka, self._name = kafka, name
        self._epoch = 0
        self._written: list[SimpleNamespace] | None = None
        self._offsets: Sequence[confluent_kafka.TopicPartition] = ()
        self._queued = 0

    def list_topics(self, topic: str, timeout_s: float) -> SimpleNamespace:
        known = topic in self._kafka.topics
        error = None if known else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def init_transactions(self, timeout_s: float) -> None:
        self._epoch = self._kafka.epochs[self._name] = self._kafka.epochs.get(self._name, 0) + 1

    def begin_transaction(self) -> None:
        assert self._written is None
        self._written, self._offsets = [], ()

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:  # noqa: ANN401
        assert self._written is not None
        self._queued += 1
        if self._queued > self._kafka.queue:
            raise BufferError
        self._written.append(SimpleNamespace(topic=topic, value=value, key=key, **more))

    def poll(self, timeout_s: float) -> None:
        if timeout_s:
            self._queued = 0

    def send_offsets_to_transaction(
        self, offsets: Sequence[confluent_kafka.TopicPartition], group: object, timeout_s: float
    ) -> None:
        self._offsets = offsets

    def commit_transaction(self, timeout_s: float) -> None:
        kafka = self._kafka
        assert self._written is not None
        if kafka.epochs[self._name] != self._epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        kafka.records += self._written
        kafka.offsets |= {(p.topic, p.partition): (p.offset, p.metadata) for p in self._offsets}
        self._written = None
        if kafka.lost_answers:
            kafka.lost_answers -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def abort_transaction(self, timeout_s: float) -> None:
        self._written = None


class FakeConsumer:
    """Knows what the group has committed."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def committed(
        self, asked: Sequence[confluent_kafka.TopicPartition], timeout_s: float
    ) -> list[Any]:
        found = [self._kafka.offsets.get((p.topic, p.partition), (-1001, "")) for p in asked]
        return [SimpleNamespace(error=None, offset=o, metadata=text) for o, text in found]

    def consumer_group_metadata(self) -> object:
        return object()

    def close(self) -> None:
        """Nothing is open."""
