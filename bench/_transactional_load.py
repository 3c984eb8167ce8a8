"""Producers that send so many records at a time, plainly or as a transaction each.

Both wait until what they sent is acknowledged before they send more, so what differs is what a
transaction adds: telling the coordinator of the partitions, the commit, and what that makes the
brokers do before the next transaction may begin.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, Producer

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Chunks:
    """``records`` at a time to all partitions of a topic in turn, by each of the ``producers``."""

    bootstrap: str
    topic: str
    partitions: int
    producers: int
    records: int
    record_bytes: int
    transactional_id: str | None = None
    """The prefix of the producers' transactional ids; None sends without transactions."""


@dataclass(frozen=True)
class Done:
    """The outcome of sending. ``commits_ms`` has the time that each commit took once all records of
    its transaction were acknowledged; without transactions each is 0."""

    chunks: int
    elapsed_s: float
    commits_ms: list[float]


class Lanes:
    """Producers, each with connections and a thread of its own."""

    def __init__(self, chunks: Chunks) -> None:
        self._lanes = [_Lane(chunks, number) for number in range(chunks.producers)]

    def send(self, seconds: float) -> Done:
        """Chunks for a while.

        Raises:
            RuntimeError: records were not acknowledged.
            KafkaException: a transaction failed.
        """
        begin = time.perf_counter()
        with ThreadPoolExecutor(len(self._lanes)) as threads:
            sent = list(threads.map(lambda lane: lane.send(seconds), self._lanes))
        elapsed_s = time.perf_counter() - begin
        return Done(sum(map(len, sent)), elapsed_s, [each for of_one in sent for each in of_one])


class _Lane:
    """One producer."""

    def __init__(self, chunks: Chunks, number: int) -> None:
        self._topic = chunks.topic
        self._partitions = chunks.partitions
        self._transactional = chunks.transactional_id is not None
        self._failure: object = None
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": chunks.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "socket.nagle.disable": True,
            "log_level": 0,
        }
        if chunks.transactional_id is not None:
            settings["transactional.id"] = f"{chunks.transactional_id}-{number}"
        self._producer = Producer(settings)
        self._shares = [
            self._share(size, chunks.record_bytes)
            for size in sizes(chunks.records, self._partitions)
        ]
        self._next = number % chunks.partitions
        if self._transactional:
            _patiently(self._producer)

    def send(self, seconds: float) -> list[float]:
        """Chunks for a while; of each, how long its commit took, in ms; plain: nothing, 0."""
        commits_ms: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            commits_ms.append(self._send_one())
        return commits_ms

    def _share(self, size: int, record_bytes: int) -> list[dict[str, object]]:
        """Return the records for one partition. The last of them reports whether it was
        delivered."""
        messages: list[dict[str, object]] = [{"value": bytes(record_bytes)} for _ in range(size)]
        messages[-1]["callback"] = self._delivered
        return messages

    def _delivered(self, error: object, _message: object) -> None:
        self._failure = self._failure or error

    def _send_one(self) -> float:
        if self._transactional:
            self._producer.begin_transaction()
        for share in self._shares:
            self._producer.produce_batch(self._topic, share, partition=self._next)
            self._next = (self._next + 1) % self._partitions
        if (left := self._producer.flush(TIMEOUT_S)) or self._failure:
            raise RuntimeError(f"{left} records are not acknowledged; {self._failure}")
        if not self._transactional:
            return 0.0
        begin = time.perf_counter()
        self._producer.commit_transaction(TIMEOUT_S)
        return (time.perf_counter() - begin) * 1000


def sizes(records: int, partitions: int) -> list[int]:
    """Return the number of records for each partition; partitions that get none are left out."""
    count = min(records, partitions)
    return [records // count + (number < records % count) for number in range(count)]


def _patiently(producer: Producer) -> None:
    """A cluster that never had a transaction makes its topic first."""
    end = time.perf_counter() + TIMEOUT_S
    while True:
        try:
            producer.init_transactions(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.perf_counter() > end:
                raise
        else:
            return
