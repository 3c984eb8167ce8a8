"""Producers: unmodified confluent-kafka, told of whole batches at a time.

Records are handed over by ``produce_batch`` and acknowledgements counted by the callback of each
batch's last record, so that Python's share of the client's work stays small.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

TIMEOUT_S: Final = 60.0
_LINGER_MS: Final = 1000
"""Longer than it takes to fill a batch: batches leave when they are full, and only then."""
_POLL_S: Final = 0.1
_WORDS: Final = ("order", "customer", "amount", "currency", "created", "warehouse", "status", "x")


@dataclass(frozen=True)
class Stream:
    """Batches of one kind, to the partitions of one topic in turn."""

    bootstrap: str
    topic: str
    partitions: int
    acks: str
    records_per_batch: int
    record_bytes: int
    codec: str = "none"
    settings: Mapping[str, object] | None = None
    """Further settings of librdkafka, beyond those that follow from the other fields."""

    @property
    def payload_bytes(self) -> int:
        return self.records_per_batch * self.record_bytes


@dataclass(frozen=True)
class Sent:
    """The outcome of a stream: how many batches were sent, how long it took, and every latency."""

    batches: int
    elapsed_s: float
    """The time until the last batch was acknowledged, in seconds."""
    latencies_ms: list[float]


class _Lane:
    """One producer, for one thread, and the partitions that it fills."""

    def __init__(self, stream: Stream, partitions: Sequence[int]) -> None:
        from confluent_kafka import Producer

        self._stream = stream
        self._partitions = partitions
        self._next = 0
        self._open = 0
        self._latencies_ms: list[float] = []
        self._failure: str | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": stream.bootstrap,
                "acks": stream.acks,
                "compression.type": stream.codec,
                "batch.num.messages": stream.records_per_batch,
                "batch.size": 4 * stream.payload_bytes,
                "message.max.bytes": max(1_000_000, 4 * stream.payload_bytes),
                "linger.ms": _LINGER_MS,
                "queue.buffering.max.kbytes": 1 << 20,
                "queue.buffering.max.messages": 10_000_000,
                "socket.nagle.disable": True,
                "delivery.timeout.ms": int(TIMEOUT_S * 1000),
                "log_level": 0,
                **(stream.settings or {}),
            }
        )
        values = sample_values(stream.records_per_batch, stream.record_bytes)
        self._one_value = values[0]
        self._messages: list[dict[str, object]] = [{"value": value} for value in values]

    def send(self, *, seconds: float, in_flight: int, batches_per_s: float = 0.0) -> Sent:
        """Keep ``in_flight`` batches open for a while, or start them at a rate if one is given.

        Latency counts from when a batch was due at the given rate: what waits for a slow one is
        slow too.

        Raises:
            RuntimeError: a batch was not acknowledged.
        """
        self._latencies_ms = []
        sent = 0
        begin = time.perf_counter()
        while (due := begin + sent / batches_per_s if batches_per_s else 0.0) < begin + seconds:
            if not self._wait(due, in_flight, begin + seconds):
                break
            self._start(due or time.perf_counter())
            sent += 1
        while self._open and time.perf_counter() < begin + seconds + TIMEOUT_S:
            self._producer.poll(_POLL_S)
        elapsed = time.perf_counter() - begin
        if self._failure or self._open:
            raise RuntimeError(f"{self._open} batches are not acknowledged; {self._failure}")
        return Sent(sent, elapsed, self._latencies_ms)

    def touch(self) -> int:
        """One record to each of its partitions; how many.

        Raises:
            RuntimeError: one was not acknowledged.
        """
        for partition in self._partitions:
            self._producer.produce(self._stream.topic, self._one_value, partition=partition)
        if left := self._producer.flush(TIMEOUT_S):
            raise RuntimeError(f"{left} records are not acknowledged")
        return len(self._partitions)

    def _wait(self, due: float, in_flight: int, end: float) -> bool:
        """Serve acknowledgements until the next batch is due and allowed; False: time is over."""
        while True:
            now = time.perf_counter()
            late = now >= due
            if late and self._open < in_flight:
                self._producer.poll(0)
                return due > 0 or now < end
            if self._failure or now > end + TIMEOUT_S:
                return False
            self._producer.poll(_POLL_S if late else min(_POLL_S, due - now))

    def _start(self, since: float) -> None:
        self._messages[-1]["callback"] = self._acknowledged(since)
        partition = self._partitions[self._next]
        self._next = (self._next + 1) % len(self._partitions)
        self._open += 1
        self._producer.produce_batch(self._stream.topic, self._messages, partition=partition)

    def _acknowledged(self, since: float) -> Callable[[object, object], None]:
        def delivered(error: object, _message: object) -> None:
            self._open -= 1
            self._latencies_ms.append((time.perf_counter() - since) * 1000)
            if error is not None:
                self._failure = str(error)

        return delivered


class Producers:
    """Several producers, each with connections and a thread of its own."""

    def __init__(self, stream: Stream, count: int) -> None:
        shares = [
            list(range(lane % stream.partitions, stream.partitions, count)) for lane in range(count)
        ]
        self._lanes = [_Lane(stream, share) for share in shares]

    def send(self, *, seconds: float, in_flight: int, batches_per_s: float = 0.0) -> Sent:
        """Send as one of them would, with the batches shared among them.

        Raises:
            RuntimeError: a batch was not acknowledged.
        """
        lanes = self._lanes[:in_flight]

        def run(lane: _Lane) -> Sent:
            return lane.send(
                seconds=seconds,
                in_flight=in_flight // len(lanes),
                batches_per_s=batches_per_s / len(lanes),
            )

        with ThreadPoolExecutor(len(lanes)) as threads:
            sent = list(threads.map(run, lanes))
        return Sent(
            sum(each.batches for each in sent),
            max(each.elapsed_s for each in sent),
            [latency for each in sent for latency in each.latencies_ms],
        )

    def touch(self) -> int:
        """One record to every partition: what a partition's first batch costs; how many."""
        return sum(lane.touch() for lane in self._lanes)


def produce(stream: Stream, *, seconds: float, in_flight: int, producers: int = 1) -> Sent:
    """New producers, that are connected before time counts.

    Raises:
        RuntimeError: a batch was not acknowledged.
    """
    new = Producers(stream, producers)
    new.touch()
    return new.send(seconds=seconds, in_flight=in_flight)


def sample_values(count: int, size: int) -> list[bytes]:
    """Values that compress as structured text does: to a third or so by lz4."""
    dice = random.Random(1)
    return [_value(dice, size) for _ in range(count)]


def _value(dice: random.Random, size: int) -> bytes:
    text = ""
    while len(text) < size:
        text += f'"{dice.choice(_WORDS)}":{dice.randrange(10**6)},'
    return text[:size].encode()
