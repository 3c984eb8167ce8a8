"""A word count of Kafka Streams, with processing.guarantee=exactly_once_v2.

The words are counted one by one, so that the counts of each word are 1, 2, 3 and so on: a word that
was counted twice or not at all, and a count that was written twice, show.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from tests.clients.applications.committed import committed_records
from tests.clients.applications.kills import Say, kill_in_turn
from tests.clients.applications.loads import in_background
from tests.clients.applications.workers import running_workers

PARTITIONS: Final = 4
WORKERS: Final = 2

_VOCABULARY: Final = [f"word-{number}" for number in range(40)]
_PAUSE_S: Final = 0.004
_COMPLETE_WITHIN_S: Final = 180.0


def run(cluster: RunningCluster, folder: Path, kills: int, seed: int, say: Say) -> str:
    """Count words while brokers and workers are killed; return what was found.

    Raises:
        AssertionError: a word was not counted exactly once.
    """
    with cluster.admin() as admin:
        for name in ("words", "counts"):
            topic = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([topic])[0].raise_for_error()

    def arguments_of(number: int) -> list[str]:
        return ["WordCount", cluster.bootstrap, str(folder / f"state-{number}")]

    with running_workers(WORKERS, folder, arguments_of) as workers:
        with _words(cluster.bootstrap, seed) as produced:
            brokers, killed = kill_in_turn(cluster, workers, kills, seed, say)
        say(f"{produced.total()} words produced; waiting for their counts")
        counts = _counts(cluster.bootstrap, produced)
    fault = fault_of(counts, produced)
    assert fault is None, fault
    return (
        f"{brokers} kills of brokers, {killed} of workers: {produced.total()} words, "
        "each counted once"
    )


@contextmanager
def _words(bootstrap: str, seed: int) -> Iterator[Counter[str]]:
    """Produce words until the end; yield how often each was acknowledged, complete afterwards."""
    acknowledged: Counter[str] = Counter()
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            acknowledged[(message.value() or b"").decode()] += 1

    def produce(is_over: threading.Event) -> None:
        chance = random.Random(seed)
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
        )
        while not is_over.is_set():
            producer.produce("words", chance.choice(_VOCABULARY).encode(), on_delivery=delivered)
            producer.poll(0)
            time.sleep(_PAUSE_S)
        assert producer.flush(60) == 0

    with in_background(produce, "words"):
        yield acknowledged
    assert not failures, f"{len(failures)} words were not acknowledged: {failures[0]}"


def _counts(bootstrap: str, produced: Counter[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)

    def is_complete() -> bool:
        return sum(map(len, found.values())) >= produced.total()

    for key, value in committed_records(
        bootstrap, "counts", PARTITIONS, is_complete, _COMPLETE_WITHIN_S
    ):
        found[(key or b"").decode()].append(int(value))
    return found


def fault_of(counts: Mapping[str, Sequence[int]], produced: Counter[str]) -> str | None:
    """Return what is wrong with the counts of the words that were produced, or None."""
    for word in sorted({*counts, *produced}):
        found, times = counts.get(word, ()), produced[word]
        if list(found) != list(range(1, times + 1)):
            twice = sorted(count for count, seen in Counter(found).items() if seen > 1)
            missing = sorted(set(range(1, times + 1)) - set(found))
            return (
                f"{word!r} was produced {times} times and counted {len(found)} times: "
                f"twice {twice[:5]}, missing {missing[:5]}"
            )
    return None
