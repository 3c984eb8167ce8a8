"""Spark's readers and transactions while brokers are killed: each committed one once, no other.

A producer with a transactional id ends some transactions well and takes others back. A reader goes
from the last stable offset that it was told to the next one, as a stream of Spark does.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from quorate.client.results import NewTopic
from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.offset_ranges import LATEST, OffsetQuestion, OffsetRange
from quorate.spark.reading.range_reader import RangePolicy, RangeReader
from quorate.spark.retries import RetryPolicy
from quorate.testing import RunningCluster, running_cluster
from tests.support.broker_kills import Kills
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TOPIC, PARTITIONS = "orders", 3
RECORDS = 12
"""Of each transaction, in all partitions."""
ATTEMPT_S, PATIENCE_S = 5.0, 60.0
VALUES = pa.schema([("value", pa.binary())])
RETRY_POLICY = RetryPolicy(60, 50)


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    config = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 1}
    with running_cluster(brokers=3, config=config) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_known(cluster, TOPIC, PARTITIONS)
        wait_until_whole(cluster)
        yield cluster


class BatchOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Sender:
    """Transactions one after the other, in a thread; the number is every record's value."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.outcomes: list[BatchOutcome] = []
        self._cluster = cluster
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def committed(self) -> int:
        return self.outcomes.count(BatchOutcome.COMMITTED)

    def wait_for_more(self, count: int) -> None:
        """Until so many more were committed."""
        wanted = self.committed() + count
        wait_until(
            lambda: self.committed() >= wanted or self._failure is not None,
            f"{wanted} committed transactions",
            timeout_s=PATIENCE_S,
        )

    def _run(self) -> None:
        try:
            producer = self._open()
            while not self._stop.is_set():
                try:
                    self.outcomes.append(self._transaction(producer))
                except KafkaException:
                    # Whoever begins anew with this id has what is open taken back, or ended as
                    # it was decided.
                    self.outcomes.append(BatchOutcome.UNKNOWN)
                    producer = self._open()
            # Nothing is left open.
            self._open()
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._failure = error

    def _open(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "transactional.id": "sender",
                "socket.timeout.ms": 3_000,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._retried(lambda: producer.init_transactions(ATTEMPT_S))
        return producer

    def _transaction(self, producer: Producer) -> BatchOutcome:
        number = len(self.outcomes)
        producer.begin_transaction()
        for place in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=place % PARTITIONS)
        producer.flush(PATIENCE_S)
        if number % 3 == 2:
            self._retried(lambda: producer.abort_transaction(ATTEMPT_S))
            return BatchOutcome.ABORTED
        self._retried(lambda: producer.commit_transaction(ATTEMPT_S))
        return BatchOutcome.COMMITTED

    def _retried(self, attempt: Callable[[], None]) -> None:
        """As librdkafka asks for it: the same call again."""
        for _ in range(round(PATIENCE_S / ATTEMPT_S)):
            try:
                attempt()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
        raise AssertionError("no answer to a transactional call")


class Reader:
    """Reads on from where it was; ``transactions``: how many records of each it has seen."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.transactions: Counter[int] = Counter()
        self._client = ClusterClient(cluster.bootstrap, RETRY_POLICY)
        self._next = {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}

    def read_on(self) -> None:
        """To the ends that leaders tell now; they never go back."""
        questions = [OffsetQuestion(one, LATEST) for one in self._next]
        self._client.refresh(self._next)
        for question, answer in self._client.list_offsets(questions).items():
            partition, start = question.topic_partition, self._next[question.topic_partition]
            assert answer.error_code == 0
            assert answer.offset >= start, "what was to be read is taken back"
            self._read(OffsetRange(partition, start, answer.offset))
            self._next[partition] = answer.offset

    def close(self) -> None:
        self._client.close()

    def _read(self, offsets: OffsetRange) -> None:
        policy = RangePolicy(True, 10_000, RETRY_POLICY)
        for rows in RangeReader(self._client, offsets, VALUES, policy).batches():
            self.transactions.update(int(value) for value in rows.column("value").to_pylist())


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_d2_each_committed_transaction_is_read_once_while_brokers_die(
    cluster: RunningCluster, kills: int
) -> None:
    reader = Reader(cluster)
    with Sender(cluster) as sender:

        def between() -> None:
            reader.read_on()
            sender.wait_for_more(1)

        Kills(cluster, seed=5, between=between).go_on(kills, [])
        sender.wait_for_more(3)
    wait_until_whole(cluster)
    reader.read_on()
    reader.close()
    assert set(reader.transactions.values()) == {RECORDS}, "of each all, or none"
    by_outcome: dict[BatchOutcome, set[int]] = {outcome: set() for outcome in BatchOutcome}
    for number, outcome in enumerate(sender.outcomes):
        by_outcome[outcome].add(number)
    seen = set(reader.transactions)
    assert seen >= by_outcome[BatchOutcome.COMMITTED], "a committed transaction is lost"
    assert not seen & by_outcome[BatchOutcome.ABORTED], "an aborted transaction was read"
    assert by_outcome[BatchOutcome.ABORTED]
