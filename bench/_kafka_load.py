"""Load by an unmodified Kafka client, in a process of its own: its work is not the broker's.

confluent-kafka calls back per record, which would make the client the bottleneck. So records are
counted by the library, and latency is sampled: one record of every ``SAMPLE_EVERY`` has a callback.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bench._support import percentile

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

P = ParamSpec("P")
T = TypeVar("T")

RECORD_BYTES = 1000
SAMPLE_EVERY = 64
PACED_RECORDS = 16
"""Records between two looks at the clock where the rate is bounded."""
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class ProduceLoad:
    """What one producer does. ``rate_mb_s`` 0: as fast as it goes.

    ``batches_in_flight`` bounds what is produced and not acknowledged, and so the latency that is
    only the client's own queue.
    """

    bootstrap: str
    topic: str
    partitions: int
    total_bytes: int
    batch_bytes: int
    batches_in_flight: int
    rate_mb_s: float = 0.0
    requests_in_flight: int = 1_000_000
    idempotent: bool = False


@dataclass(frozen=True)
class Produced:
    """What came of it. Latency: from ``produce()``, so with the client's queue, to the callback."""

    megabytes_per_second: float
    p50_ms: float
    p99_ms: float
    records: int


def in_own_process(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """``function(…)`` in a fresh interpreter."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **keywords).result()


def produce(load: ProduceLoad) -> Produced:
    """Produce the load with acks=all.

    Raises:
        RuntimeError: a record was not acknowledged.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": "all",
            "enable.idempotence": load.idempotent,
            "max.in.flight.requests.per.connection": load.requests_in_flight,
            "batch.size": load.batch_bytes,
            "message.max.bytes": max(1_000_000, 2 * load.batch_bytes),
            "linger.ms": 5,
            "queue.buffering.max.kbytes": load.batches_in_flight * load.batch_bytes // 1024,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.timeout.ms": int(TIMEOUT_S * 1000),
        }
    )
    producer.list_topics(load.topic, timeout=TIMEOUT_S)
    sampled: list[float] = []
    failed: list[str] = []
    count = load.total_bytes // RECORD_BYTES
    with _callbacks_served(producer):
        begin = time.perf_counter()
        _send(producer, load, count, sampled, failed)
        left = producer.flush(TIMEOUT_S)
        elapsed = time.perf_counter() - begin
    if left or failed:
        raise RuntimeError(f"{left} records unacknowledged, {len(failed)} failed: {failed[:1]}")
    return Produced(
        megabytes_per_second=count * RECORD_BYTES / 1e6 / elapsed,
        p50_ms=percentile(sampled, 0.50),
        p99_ms=percentile(sampled, 0.99),
        records=count,
    )


@contextmanager
def _callbacks_served(producer: "Producer") -> Iterator[None]:
    """Serve acknowledgements as they come, so that sampled latency is theirs."""
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            producer.poll(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _send(
    producer: "Producer", load: ProduceLoad, count: int, sampled: list[float], failed: list[str]
) -> None:
    value = os.urandom(RECORD_BYTES)
    per_batch = max(1, load.batch_bytes // RECORD_BYTES)
    begin = time.perf_counter()
    for number in range(count):
        partition = number // per_batch % load.partitions
        callback = _sampler(sampled, failed) if number % SAMPLE_EVERY == 0 else None
        while True:
            try:
                producer.produce(load.topic, value, partition=partition, on_delivery=callback)
                break
            except BufferError:
                time.sleep(0.001)
        if load.rate_mb_s and number % PACED_RECORDS == 0:
            ahead = number * RECORD_BYTES / (load.rate_mb_s * 1e6) - (time.perf_counter() - begin)
            if ahead > 0:
                time.sleep(ahead)


def _sampler(sampled: list[float], failed: list[str]) -> Callable[[object, object], None]:
    begin = time.perf_counter()

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))
        sampled.append((time.perf_counter() - begin) * 1000)

    return delivered


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> float:
    """MB/s of reading ``records`` records from the beginning, by one consumer of all partitions.

    Counted from the first record's arrival: how long a client takes to connect is not throughput.

    Raises:
        RuntimeError: they did not come.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 32 << 20,
            "message.max.bytes": 16 << 20,
            "receive.message.max.bytes": 64 << 20,
            # By default the library pauses for a second when 100,000 records wait in its queue:
            # that would be measured, and nothing else.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 5,
        }
    )
    assignment = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
    deadline = time.perf_counter() + TIMEOUT_S
    try:
        consumer.assign(assignment)
        first = _arrived(consumer.consume(1, timeout=TIMEOUT_S))
        begin = time.perf_counter()
        seen = first
        while seen < records:
            seen += _arrived(consumer.consume(min(5_000, records - seen), timeout=1.0))
            if time.perf_counter() > deadline:
                raise RuntimeError(f"only {seen} of {records} records came in {TIMEOUT_S:.0f} s")
        return (seen - first) * RECORD_BYTES / 1e6 / (time.perf_counter() - begin)
    finally:
        consumer.close()


def _arrived(messages: "list[Message]") -> int:
    return sum(message.error() is None for message in messages)
