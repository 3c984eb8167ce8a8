"""Moves of a replica between two log folders of a broker (KIP-113): how fast they are, and what a
producer to another topic notices.

One broker with two log folders, which are on one disk here. A topic is filled, and its replica is
moved back and forth without a throttle. Meanwhile a producer sends small records with acks=all at a
steady rate; the first row is the same without a move.
"""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from confluent_kafka import Message, Producer

from bench._support import Bench, percentile
from quorate.client.kafka_request import NO_TAGS, array, ask_flexible, text
from quorate.client.log_directories import describe_log_directories
from quorate.client.results import NewTopic
from quorate.client.security import ClientSecurity
from quorate.testing import RunningCluster, running_cluster

TOPIC: Final = "moved"
OTHER: Final = "produced-to"
RECORD: Final = bytes(range(256)) * 4
"""1 KiB; the records are not compressed."""
RATE: Final = 200
"""The records a second of the producer to the other topic."""

_ALTER_REPLICA_LOG_DIRS: Final = (34, 2)
_TIMEOUT_MS: Final = 10_000


class Moves:
    """The cluster, and the topic that moves."""

    def __init__(self, cluster: RunningCluster, size_mib: int) -> None:
        self._cluster = cluster
        self._size_bytes = size_mib << 20
        with cluster.admin() as admin:
            for name in (TOPIC, OTHER):
                admin.create_topics([NewTopic(name=name, num_partitions=1)])[0].raise_for_error()
        self._fill(size_mib)

    def _fill(self, size_mib: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "batch.size": 1_000_000,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        for _ in range(size_mib):
            for _ in range(1024):
                producer.produce(TOPIC, RECORD)
            producer.flush(60)

    def where(self) -> tuple[str, str]:
        """Return the folder that has the topic's replica, and the other one."""
        found = describe_log_directories(self._cluster.bootstrap, ClientSecurity(), _TIMEOUT_MS)
        first, second = sorted(found, key=lambda one: -one.size_bytes)
        return first.path, second.path

    def move(self) -> dict[str, float]:
        """Move the replica into the other folder, and return MB/s and what the producer noticed."""
        here, there = self.where()
        partition = text(TOPIC) + array([struct.pack(">i", 0)]) + NO_TAGS
        body = array([text(there) + array([partition]) + NO_TAGS]) + NO_TAGS
        with latencies(self._cluster.bootstrap) as took_ms:
            began = time.perf_counter()
            ask_flexible(
                self._cluster.bootstrap,
                _ALTER_REPLICA_LOG_DIRS,
                body,
                lambda reader: reader.unsigned_varint(),
                timeout_ms=_TIMEOUT_MS,
                security=ClientSecurity(),
            )
            while self.where()[0] == here or self._is_moving():
                time.sleep(0.1)
            seconds = time.perf_counter() - began
        return {"MB/s": self._size_bytes / 1e6 / seconds, **figures(took_ms)}

    def _is_moving(self) -> bool:
        found = describe_log_directories(self._cluster.bootstrap, ClientSecurity(), _TIMEOUT_MS)
        return any(one.moving_here for one in found)

    def rest(self, seconds: float) -> dict[str, float]:
        """Return what the producer notices while nothing moves."""
        with latencies(self._cluster.bootstrap) as took_ms:
            time.sleep(seconds)
        return figures(took_ms)


@contextmanager
def latencies(bootstrap: str) -> Iterator[list[float]]:
    """Produce at a steady rate; the list gets the milliseconds until each acknowledgement."""
    took_ms: list[float] = []
    ended = threading.Event()

    def run() -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        due = time.perf_counter()
        while not ended.is_set():
            producer.produce(OTHER, RECORD, on_delivery=partial(note, time.perf_counter()))
            due += 1 / RATE
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
        producer.flush(30)

    def note(sent: float, error: object, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        took_ms.append((time.perf_counter() - sent) * 1000)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)  # The producer connects first.
    took_ms.clear()
    try:
        yield took_ms
    finally:
        ended.set()
        thread.join()


def figures(took_ms: list[float]) -> dict[str, float]:
    return {
        "p50 ms": percentile(took_ms, 0.5),
        "p99 ms": percentile(took_ms, 0.99),
        "max ms": max(took_ms),
    }


def main() -> None:
    bench = Bench.from_command_line("Replica moves", "moving a replica between log folders")
    (size_mib,) = bench.pick(full=(256,), quick=(64,))
    with running_cluster(brokers=1, voters=1, log_dirs="disk-1,disk-2") as cluster:
        moves = Moves(cluster, size_mib)
        bench.row({"what": "no move"}, bench.repeat(lambda: moves.rest(4.0)))
        bench.row({"what": f"a move of {size_mib} MiB"}, bench.repeat(moves.move))
    bench.finish()


if __name__ == "__main__":
    main()
