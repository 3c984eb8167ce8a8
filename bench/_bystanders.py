"""Clients that stand by while others change topics: a producer, and elections on request."""

import multiprocessing
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Final

from bench._cluster_probe import ClusterProbe
from bench._kafka_producers import Producers, Stream
from quorate.client.admin import AdminClient
from quorate.client.results import ElectionType, PartitionName

BATCHES_PER_S: Final = 50.0
_ROUND_S: Final = 2.0
_START_TIMEOUT_S: Final = 60.0
_MOVE_EVERY_S: Final = 0.5
_TIMEOUT_MS: Final = 120_000


class BystandingProducer:
    """Batches at a fixed rate, in a process of its own. A context manager."""

    def __init__(self, stream: Stream) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop, started = context.Event(), context.Event()
        self._latencies, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_produce, args=(stream, started, self._stop, theirs), daemon=True
        )
        self._started = started

    def __enter__(self) -> "BystandingProducer":
        self._process.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError("the producer does not begin")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._process.join(_START_TIMEOUT_S)

    def stop(self) -> list[float]:
        """The latencies of all batches, in ms."""
        self._stop.set()
        latencies: list[float] = self._latencies.recv()
        return latencies


def _produce(stream: Stream, started: Event, stop: Event, answer: "Connection") -> None:
    producers = Producers(stream, 1)
    producers.touch()
    started.set()
    latencies: list[float] = []
    while not stop.is_set():
        sent = producers.send(seconds=_ROUND_S, in_flight=1_000, batches_per_s=BATCHES_PER_S)
        latencies += sent.latencies_ms
    answer.send(latencies)


class ElectionsOnRequest:
    """Moves the leader of one partition between its replicas, again and again. A context manager.

    "moved" is from the request until every given broker tells its clients of the new leader.
    """

    def __init__(
        self, bootstrap: str, partition: PartitionName, replicas: Sequence[int], probe: ClusterProbe
    ) -> None:
        self._bootstrap = bootstrap
        self._partition = partition
        self._replicas = list(replicas)
        self._probe = probe
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="elections-on-request")
        self.times_ms: list[float] = []

    def __enter__(self) -> "ElectionsOnRequest":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with AdminClient(self._bootstrap, timeout_ms=_TIMEOUT_MS) as admin:
                while not self._stop.is_set():
                    self.times_ms.append(self._move(admin))
                    self._stop.wait(_MOVE_EVERY_S)
        except Exception as error:  # noqa: BLE001 - raised where the context ends
            self._failure = error

    def _move(self, admin: AdminClient) -> float:
        topic = self._partition.topic
        leader = self._probe.leaders([topic])[topic][0]
        first = self._replicas[(self._replicas.index(leader) + 1) % len(self._replicas)]
        order = [first, *(one for one in self._replicas if one != first)]
        (accepted,) = admin.alter_partition_reassignments({self._partition: order})
        accepted.raise_for_error()
        asked_s = time.time()
        (elected,) = admin.elect_leaders(ElectionType.PREFERRED, [self._partition])
        elected.raise_for_error()
        told_s = self._probe.until_told(
            [topic], lambda _, leaders: leaders == [first], timeout_s=_TIMEOUT_MS / 1000
        )
        return (told_s - asked_s) * 1000
