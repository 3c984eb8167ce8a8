"""Topics created and deleted by an unmodified Kafka admin client, in a process of its own."""

import functools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

REQUEST_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Storm:
    """A storm of requests, one every ``interval_s``, each of which creates several topics."""

    requests: int
    topics_per_request: int
    partitions: int
    replication_factor: int
    interval_s: float

    @property
    def topics(self) -> list[str]:
        """The names of all topics that will be created."""
        return [f"storm-{number:05}" for number in range(self.requests * self.topics_per_request)]


@dataclass(frozen=True)
class Sent:
    """When the last request was sent (``time.time()``), and the answers' latencies in ms."""

    last_sent_s: float
    latencies_ms: list[float]


def create(bootstrap: str, storm: Storm) -> Sent:
    """Send every request in time, whatever becomes of those before it.

    Raises:
        RuntimeError: a topic was refused.
    """
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = storm.topics
    answers: list[Future[None]] = []
    sent_s: list[float] = []
    answered_s: dict[int, float] = {}
    begun_s = time.time()
    for request in range(storm.requests):
        time.sleep(max(0.0, begun_s + request * storm.interval_s - time.time()))
        first = request * storm.topics_per_request
        new = [
            NewTopic(name, storm.partitions, storm.replication_factor)
            for name in names[first : first + storm.topics_per_request]
        ]
        sent_s.append(time.time())
        futures = admin.create_topics(
            new, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
        )
        answers += list(futures.values())
        answers[-1].add_done_callback(functools.partial(_note, answered_s, request))
    _refuse_failures(answers)
    latencies_ms = [(answered_s[number] - at) * 1000 for number, at in enumerate(sent_s)]
    return Sent(sent_s[-1], latencies_ms)


def delete(bootstrap: str, topics: Sequence[str]) -> Sent:
    """All in one request.

    Raises:
        RuntimeError: one was refused.
    """
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    sent_s = time.time()
    answers = admin.delete_topics(
        list(topics), operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    _refuse_failures(answers.values())
    return Sent(sent_s, [(time.time() - sent_s) * 1000])


def _note(answered_s: dict[int, float], request: int, _answer: "Future[None]") -> None:
    answered_s[request] = time.time()


def _refuse_failures(answers: "Iterable[Future[None]]") -> None:
    """The library's own errors cannot be handed to the process that asked."""
    failed = [error for answer in answers if (error := answer.exception()) is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} topics were refused, the first: {failed[0]}")
