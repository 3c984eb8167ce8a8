"""Producing with acks=all, and remembering every acknowledgement."""

import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from quorate.demo.source import Line

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

STEPS: Final = 500
"""How often, over the whole input, the pace is kept and progress is told."""

POLL_EVERY_RECORDS: Final = 1_000
DELIVERY_TIMEOUT_S: Final = 120


@dataclass
class Acknowledgements:
    """Offsets acknowledged per partition, and the longest silence of each since ``watch_from``."""

    offsets: "dict[int, array[int]]" = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    watch_from: float | None = None
    silence_s: dict[int, float] = field(default_factory=dict)
    _last: dict[int, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))

    def on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self.failures.append(error.str())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if partition not in self.offsets:
            self.offsets[partition] = array("q")
        self.offsets[partition].append(offset)
        now = time.monotonic()
        if self.watch_from is not None:
            before = max(self._last.get(partition, now), self.watch_from)
            self.silence_s[partition] = max(self.silence_s.get(partition, 0.0), now - before)
        self._last[partition] = now


def produce_lines(
    bootstrap: str,
    topic: str,
    lines: Iterable[Line],
    size_bytes: int,
    *,
    acknowledgements: Acknowledgements,
    at_least_s: float,
    on_progress: Callable[[int, int], None],
) -> int:
    """Produces every line; the number of records.

    Small input is spread evenly over ``at_least_s``, so that something is still being written while
    the controller dies. ``on_progress(records, bytes)`` is called now and then.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "quorate-demo",
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # librdkafka by itself asks for new leaders once a second only.
            "topic.metadata.refresh.interval.ms": 250,
            "log_level": 0,
        }
    )
    begin = time.monotonic()
    produced = next_step = 0
    for line in lines:
        _hand_over(producer, topic, line, acknowledgements)
        produced += 1
        if produced % POLL_EVERY_RECORDS == 0:
            producer.poll(0)
        if line.end >= next_step:
            on_progress(produced, line.end)
            _poll_until(producer, begin + at_least_s * line.end / size_bytes)
            next_step = line.end + size_bytes // STEPS
    producer.flush(DELIVERY_TIMEOUT_S)
    return produced


def _poll_until(producer: Producer, when: float) -> None:
    """Serves delivery reports until that moment; not at all if it has passed."""
    while (left_s := when - time.monotonic()) > 0:
        producer.poll(left_s)


def _hand_over(
    producer: Producer, topic: str, line: Line, acknowledgements: Acknowledgements
) -> None:
    """Hands over one record; waits while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, line.text, line.path, on_delivery=acknowledgements.on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            return
