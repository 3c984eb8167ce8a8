"""Load by an unmodified Kafka client, in a process of its own: its work is not the broker's."""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from confluent_kafka import Message

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_S: Final = 60.0


def in_own_process(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """``function(…)`` in a fresh interpreter."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **keywords).result()


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> tuple[int, float]:
    """Records and seconds of reading a topic from its beginning, by one consumer of all partitions.

    Counted from the first records' arrival: how long a client takes to connect is not throughput.

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
            "log_level": 0,
        }
    )
    deadline = time.perf_counter() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        first = _arrived(consumer.consume(1, timeout=TIMEOUT_S))
        begin = time.perf_counter()
        seen = first
        while seen < records:
            seen += _arrived(consumer.consume(min(10_000, records - seen), timeout=1.0))
            if time.perf_counter() > deadline:
                raise RuntimeError(f"only {seen} of {records} records came in {TIMEOUT_S:.0f} s")
        return seen - first, time.perf_counter() - begin
    finally:
        consumer.close()


def _arrived(messages: "list[Message]") -> int:
    return sum(message.error() is None for message in messages)
