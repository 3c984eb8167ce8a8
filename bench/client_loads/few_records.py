"""Loads of few records by librdkafka, where latency counts: many slow producers, and one record at
a time from its producer to a consumer."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench._kafka_load import in_own_process
from bench.client_loads.load import PARTITIONS, Figures, ServersCost, Target, latencies

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.001


@dataclass(frozen=True)
class ManyProducers:
    """So many producers of one process, each with connections of its own, that send a record at
    fixed times. Latency counts from when a record was due."""

    seconds: float
    producers: int = 50
    records_per_s: int = 20
    record_bytes: int = 200
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return f"librdkafka-{self.producers}-producers-{self.records_per_s}-per-s"

    def measure(self, target: Target) -> Figures:
        """Send in a process of its own for a while.

        Raises:
            RuntimeError: a record was not acknowledged.
        """
        return in_own_process(self._send, target)

    def _send(self, target: Target) -> Figures:
        lanes = [
            PacedProducer(_producer(target.bootstrap), target.topic, bytes(self.record_bytes))
            for _ in range(self.producers)
        ]
        interval_s = 1 / self.records_per_s
        count = int(self.seconds * self.records_per_s)
        with ThreadPoolExecutor(len(lanes)) as threads:
            list(threads.map(lambda lane: lane.touch(self.partitions), lanes))
            cost, begin = ServersCost(target), time.perf_counter()
            starts = [begin + interval_s * n / len(lanes) for n in range(len(lanes))]
            sent = threads.map(lambda lane, at: lane.send(at, interval_s, count), lanes, starts)
            all_ms = [each for of_one in sent for each in of_one]
        return {
            "records/s": len(all_ms) / (time.perf_counter() - begin),
            **latencies(all_ms),
            **cost.per_record(len(all_ms)),
        }


class PacedProducer:
    """One producer, for one thread."""

    def __init__(self, producer: "Producer", topic: str, value: bytes) -> None:
        self._producer = producer
        self._topic = topic
        self._value = value
        self._open = 0
        self._latencies_ms: list[float] = []
        self._failure: object = None

    def touch(self, partitions: int) -> None:
        """Connect to every leader.

        Raises:
            RuntimeError: a record was not acknowledged.
        """
        for partition in range(partitions):
            self._producer.produce(self._topic, self._value, partition=partition)
        if left := self._producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} records are not acknowledged")

    def send(self, start: float, interval_s: float, count: int) -> list[float]:
        """Send ``count`` records, the first at ``start``; the latency of each in ms.

        Raises:
            RuntimeError: a record was not acknowledged.
        """
        for number in range(count):
            due = start + number * interval_s
            while (wait_s := due - time.perf_counter()) > 0:
                self._producer.poll(wait_s)
            self._start(due)
        end = time.perf_counter() + _TIMEOUT_S
        while self._open and time.perf_counter() < end:
            self._producer.poll(_PAUSE_S)
        if self._open or self._failure:
            raise RuntimeError(f"{self._open} records are not acknowledged; {self._failure}")
        return self._latencies_ms

    def _start(self, due: float) -> None:
        def delivered(error: object, _message: object) -> None:
            self._open -= 1
            self._failure = self._failure or error
            self._latencies_ms.append((time.perf_counter() - due) * 1000)

        self._open += 1
        self._producer.produce(self._topic, self._value, on_delivery=delivered)


@dataclass(frozen=True)
class EndToEnd:
    """The loop of Kafka's EndToEndLatency with librdkafka, whose times are exact: one record at a
    time, from ``produce`` until a consumer of all partitions has it."""

    records: int
    record_bytes: int = 100
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return "librdkafka-end-to-end"

    def measure(self, target: Target) -> Figures:
        """Send and receive all records in a process of its own.

        Raises:
            RuntimeError: a record did not come.
        """
        return in_own_process(self._send, target)

    def _send(self, target: Target) -> Figures:
        producer, consumer = _producer(target.bootstrap), _consumer(target, self.partitions)
        try:
            for _ in range(max(1, self.records // 10)):
                self._round_trip(producer, consumer, target.topic)
            cost = ServersCost(target)
            times_ms = [
                self._round_trip(producer, consumer, target.topic) for _ in range(self.records)
            ]
            figures = cost.per_record(self.records)
        finally:
            consumer.close()
        return {**latencies(times_ms), "mean ms": sum(times_ms) / len(times_ms), **figures}

    def _round_trip(self, producer: "Producer", consumer: "Consumer", topic: str) -> float:
        begin = time.perf_counter()
        producer.produce(topic, bytes(self.record_bytes))
        if producer.flush(_TIMEOUT_S):
            raise RuntimeError("a record is not acknowledged")
        message = consumer.poll(_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise RuntimeError(f"a record did not come: {message and message.error()}")
        return (time.perf_counter() - begin) * 1000


def _producer(bootstrap: str) -> "Producer":
    """A producer that waits for no further records: a batch of one leaves at once."""
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "log_level": 0,
        }
    )


def _consumer(target: Target, partitions: int) -> "Consumer":
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign(
        [TopicPartition(target.topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    return consumer
