"""Steady acks=all load by an unmodified Kafka client, and what the cluster acknowledged of it.

Keys are numbered, so that "every acknowledged record is consumed" is a comparison of sets, and
acknowledgements are timed per partition, so that "writes went on within" is the longest silence of
any one partition, not of the whole.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.waiting import wait_until

FLUSH_TIMEOUT_S = 45.0
CONSUME_TIMEOUT_S = 45.0
PRODUCE_EVERY_S = 0.002


@dataclass
class Acknowledged:
    """The records that were acknowledged: where each went, and when each partition answered.

    A record's value is its key, ``repeats`` times.
    """

    repeats: int = 8
    offsets: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Key → (partition, offset)."""
    failures: list[str] = field(default_factory=list)
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def longest_silence_s(self) -> float:
        """The longest time between two acknowledgements of one partition."""
        return max(
            later - earlier for times in self.times.values() for earlier, later in pairwise(times)
        )


class AckedLoad:
    """Produces to every partition of ``topic`` in turn until stopped, in a thread of its own.

    ``settings``: more of librdkafka's, for what its defaults are too patient for.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        settings: Mapping[str, str | int],
        every_s: float = PRODUCE_EVERY_S,
        repeats: int = 8,
    ) -> None:
        self.acknowledged = Acknowledged(repeats)
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, name="acked-load")
        self._left = 0

    def start(self) -> None:
        self._thread.start()

    def wait_for_more(self, count: int, *, timeout_s: float = 20.0) -> None:
        """Wait until ``count`` more records were acknowledged in every partition."""
        before = {p: len(self.acknowledged.times[p]) for p in range(self._partitions)}

        def more() -> dict[int, int]:
            return {p: len(self.acknowledged.times[p]) - before[p] for p in before}

        wait_until(
            lambda: min(more().values()) >= count,
            lambda: f"{count} more acknowledged in each partition: it is {more()}",
            timeout_s=timeout_s,
        )

    def stop(self) -> Acknowledged:
        """Stop, wait for what is under way, and fail if some of it was never answered."""
        self.close()
        assert not self._thread.is_alive(), "the producer did not stop"
        assert self._left == 0, f"{self._left} records were never answered"
        return self.acknowledged

    def close(self) -> None:
        self._stop.set()
        self._thread.join(FLUSH_TIMEOUT_S + 5)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._every_s):
            key = b"%08d" % number
            self._producer.produce(
                self._topic,
                value=key * self.acknowledged.repeats,
                key=key,
                partition=number % self._partitions,
                on_delivery=self._delivered,
            )
            number += 1
            self._producer.poll(0)
        self._left = self._producer.flush(FLUSH_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key, partition, offset = message.key(), message.partition(), message.offset()
        if error is not None or key is None or partition is None or offset is None:
            self.acknowledged.failures.append(f"{key!r}: {error}")
            return
        self.acknowledged.offsets[key] = (partition, offset)
        self.acknowledged.times[partition].append(time.monotonic())


@contextmanager
def acked_load(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    every_s: float = PRODUCE_EVERY_S,
    repeats: int = 8,
    **settings: str | int,
) -> Iterator[AckedLoad]:
    """A running load; stopped at the end, if the test has not stopped it.

    ``settings`` are librdkafka's, with ``_`` for ``.``.
    """
    named = {key.replace("_", "."): value for key, value in settings.items()}
    load = AckedLoad(bootstrap, topic, partitions, named, every_s, repeats)
    load.start()
    try:
        yield load
    finally:
        load.close()


Place = tuple[int, int, bytes]
"""(partition, offset, value) of a record read."""

Consumed = Mapping[bytes, list[Place]]
"""Key → every place where it was read."""


def consume_all(bootstrap: str, topic: str, partitions: int) -> Consumed:
    """Every record between the beginning and the high watermark of now.

    Raises:
        AssertionError: a partition did not come to its end in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "consume-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[bytes, list[Place]] = defaultdict(list)
    deadline = time.monotonic() + CONSUME_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        at_end: set[int] = set()
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"only partitions {sorted(at_end)} came to an end"
            for message in consumer.consume(1000, timeout=0.2):
                _note(message, found, at_end)
    finally:
        consumer.close()
    return found


def _note(message: Message, found: dict[bytes, list[Place]], at_end: set[int]) -> None:
    partition, offset = message.partition(), message.offset()
    key, value, error = message.key(), message.value(), message.error()
    assert partition is not None
    if error is None:
        assert offset is not None
        assert value is not None
        found[key or b""].append((partition, offset, value))
    elif error.code() == KafkaError._PARTITION_EOF:
        at_end.add(partition)


def assert_nothing_lost(
    acknowledged: Acknowledged, consumed: Consumed, log_starts: Mapping[int, int] | None = None
) -> None:
    """Every acknowledged record is where it was acknowledged to be, with its bytes.

    ``log_starts``: by partition, where retention has moved the start of the log to.
    """
    starts = log_starts or {}
    lost = {
        key: place
        for key, place in acknowledged.offsets.items()
        if (*place, key * acknowledged.repeats) not in consumed.get(key, ())
        and place[1] >= starts.get(place[0], 0)
    }
    assert not lost, f"{len(lost)} of {len(acknowledged.offsets)} acknowledged are lost: " + str(
        Counter(partition for partition, _ in lost.values())
    )


def assert_nothing_twice(consumed: Consumed) -> None:
    """Every record is in one place. Only where the load was idempotent."""
    twice = {key: places for key, places in consumed.items() if len(places) > 1}
    assert not twice, f"{len(twice)} of {len(consumed)} were stored twice: {min(twice.items())}"


def assert_order_kept(acknowledged: Acknowledged) -> None:
    """Check that in each partition what was sent later lies behind what was sent before it.

    Only where the load was idempotent, or had one request in flight at a time: a record that is
    sent again may otherwise be overtaken.
    """
    last: dict[int, tuple[bytes, int]] = {}
    for key, (partition, offset) in sorted(acknowledged.offsets.items()):
        before = last.get(partition)
        assert before is None or before[1] < offset, (
            f"partition {partition}: record {before[0]!r} is at offset {before[1]}, "
            f"record {key!r}, sent after it, at {offset}"
        )
        last[partition] = key, offset
