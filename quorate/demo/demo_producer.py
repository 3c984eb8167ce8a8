"""Produces the input with acks=all, and remembers every acknowledgement."""

import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from quorate.demo.demo_input import Line

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

STEPS: Final = 500
"""The number of times that the pace is adjusted and the progress reported, over the whole input."""

POLL_EVERY_RECORDS: Final = 1_000
DELIVERY_TIMEOUT_S: Final = 120


@dataclass
class Acknowledgements:
    """The acknowledged offsets, and the longest time that each partition was silent."""

    offsets: "dict[int, array[int]]" = field(default_factory=dict)
    """The acknowledged offsets by partition."""
    failures: list[str] = field(default_factory=list)
    silence_s: dict[int, float] = field(default_factory=dict)
    """The longest time without an acknowledgement since `watch_silence`, by partition."""
    watch_from: float | None = None
    _last: dict[int, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of acknowledgements."""
        return sum(map(len, self.offsets.values()))

    def watch_silence(self) -> None:
        """Measure from now on how long each partition is without an acknowledgement."""
        self.watch_from = time.monotonic()

    def on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        """Note a delivery report of the producer."""
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
    """Produce every line, and return the number of records.

    Small input is spread evenly over ``at_least_s`` seconds, so that records are still being
    written while the controller dies. ``on_progress(records, bytes)`` is called from time to time.
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
            # By default librdkafka asks for new leaders only once a second.
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
    """Serve delivery reports until that moment; return at once if it has passed."""
    while (left_s := when - time.monotonic()) > 0:
        producer.poll(left_s)


def _hand_over(
    producer: Producer, topic: str, line: Line, acknowledgements: Acknowledgements
) -> None:
    """Hand over one record to the producer; wait while its queue is full."""
    while True:
        try:
            producer.produce(topic, line.text, line.path, on_delivery=acknowledgements.on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            return
