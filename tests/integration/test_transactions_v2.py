"""Transactions v2 on a real cluster, while coordinators and leaders are killed (KIP-890).

A client of a few lines sends what no real client would: a batch of a transaction that has ended.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka
import pytest

from bench.hostile_requests.wire import Wire
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import PATIENCE_S, Confluent
from tests.support.kafka_wire import Values
from tests.support.record_batches import TRANSACTIONAL, Record, encode_batch
from tests.support.whole_cluster import wait_until_known

pytestmark = pytest.mark.integration

PRODUCE, METADATA, FIND_COORDINATOR = (0, 12), (3, 1), (10, 2)
INIT_PRODUCER_ID, END_TXN, API_VERSIONS = (22, 5), (26, 5), (18, 3)
TOPIC: Final = "orders"
PARTITIONS: Final = 3
ROUNDS: Final = 6
LATE: Final = b"late"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3) as found:
        Confluent(found.bootstrap).create(TOPIC, PARTITIONS, replication_factor=3)
        wait_until_known(found, TOPIC, PARTITIONS)
        yield found


class Producer:
    """A producer with transactions v2. It asks again until its request is carried out."""

    def __init__(self, cluster: RunningCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.producer = (-1, -1)
        values = {"transactional_id": name, "transaction_timeout": 60_000}
        answer = self._until_done(INIT_PRODUCER_ID, values, self._coordinator)
        self.producer = (answer.producer_id, answer.producer_epoch)

    def write(
        self,
        partition: int,
        value: bytes,
        producer: tuple[int, int] | None = None,
        sequence: int = 0,
    ) -> int:
        """One record, the first of its transaction in this partition. Return the error code."""
        batch = encode_batch(
            [Record(0, value=value)],
            attributes=TRANSACTIONAL,
            producer=(*(producer or self.producer), sequence),
        )
        values = {
            "transactional_id": self._name,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
            ],
        }
        answer = self._until_done(PRODUCE, values, lambda: self._leader(partition))
        return int(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, commit: bool) -> None:
        values = {
            "transactional_id": self._name,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
            "committed": commit,
        }
        answer = self._until_done(END_TXN, values, self._coordinator)
        assert answer.error_code == errors_pb2.NONE
        before, self.producer = self.producer, (answer.producer_id, answer.producer_epoch)
        assert self.producer == (before[0], before[1] + 1), "the next epoch, told once more or not"

    def _until_done(self, api: tuple[int, int], values: Values, where: Callable[[], str]) -> Any:  # noqa: ANN401 - kio's entities
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline_s, f"{api} is not carried out"
            try:
                with Wire(where()) as wire:
                    answer = wire.ask(*api, values)
            except OSError:
                continue
            if _code_of(answer) not in _AGAIN:
                return answer

    def coordinator_id(self) -> int:
        return int(self._ask_any(FIND_COORDINATOR, {"key": self._name, "key_type": 1}).node_id)

    def leader_id(self, partition: int) -> int:
        answer = self._ask_any(METADATA, {"topics": [{"name": TOPIC}]})
        return int(answer.topics[0].partitions[partition].leader_id)

    def _coordinator(self) -> str:
        return self._address(self.coordinator_id())

    def _leader(self, partition: int) -> str:
        return self._address(self.leader_id(partition))

    def _address(self, broker_id: int) -> str:
        if broker_id < 0:
            raise OSError("it is not elected yet")
        return self._cluster.broker_address(broker_id)

    def _ask_any(self, api: tuple[int, int], values: Values) -> Any:  # noqa: ANN401 - as above
        for address in self._cluster.bootstrap.split(","):
            try:
                with Wire(address) as wire:
                    return wire.ask(*api, values)
            except OSError:
                continue
        raise OSError("no broker answers")


_AGAIN: Final = {
    errors_pb2.CONCURRENT_TRANSACTIONS,
    errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
    errors_pb2.NOT_COORDINATOR,
    errors_pb2.NOT_LEADER_OR_FOLLOWER,
    errors_pb2.NOT_ENOUGH_REPLICAS,
    errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors_pb2.REQUEST_TIMED_OUT,
    errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
}


def _code_of(answer: Any) -> int:  # noqa: ANN401 - as above
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    return int(answer.error_code)


def test_clients_are_told_that_transactions_v2_are_in_force(cluster: RunningCluster) -> None:
    with Wire(cluster.bootstrap.split(",")[0]) as wire:
        values = {"client_software_name": "x", "client_software_version": "1"}
        answer = wire.ask(*API_VERSIONS, values)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels["transaction.version"] == 2


def test_no_batch_gets_into_a_later_transaction_whoever_is_killed(
    cluster: RunningCluster,
) -> None:
    producer = Producer(cluster, "pay")
    before = read_committed(cluster)
    expected: set[bytes | None] = set()
    former: tuple[int, int] | None = None
    for number in range(ROUNDS):
        for partition in range(PARTITIONS):
            value = b"%d-%d" % (number, partition)
            assert producer.write(partition, value) == errors_pb2.NONE
            if number % 3 != 1:
                expected.add(value)
            if former is not None:
                code = producer.write(partition, LATE, former, 1)
                assert code == errors_pb2.INVALID_PRODUCER_EPOCH, "the next one has begun here"
        former = producer.producer
        victim = None
        if number in (2, 4):
            victim = producer.coordinator_id() if number == 2 else producer.leader_id(0)
            cluster.kill_broker(victim)
        producer.end(commit=number % 3 != 1)
        if victim is not None:
            cluster.restart_broker(victim)
    assert read_committed(cluster) - before == expected


def read_committed(cluster: RunningCluster) -> set[bytes | None]:
    """Everything up to the last stable offset of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    values: set[bytes | None] = set()
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "no answer"
        error = message.error()
        if error is None:
            values.add(message.value())
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return values


def test_a_client_without_transactions_v2_takes_turns_with_one_that_has_them(
    cluster: RunningCluster,
) -> None:
    """Each fences the other, and both write to the same partitions."""
    older = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "turns", "linger.ms": 0}
    )
    older.init_transactions(PATIENCE_S)
    older.begin_transaction()
    older.produce(TOPIC, b"older", partition=0)
    older.commit_transaction(PATIENCE_S)
    newer = Producer(cluster, "turns")
    assert newer.write(0, b"newer") == errors_pb2.NONE
    newer.end(commit=True)
    older.begin_transaction()
    older.produce(TOPIC, b"fenced", partition=0)
    with pytest.raises(confluent_kafka.KafkaException):
        older.commit_transaction(PATIENCE_S)
    again = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "turns", "linger.ms": 0}
    )
    again.init_transactions(PATIENCE_S)
    assert newer.write(0, b"fenced") == errors_pb2.INVALID_PRODUCER_EPOCH
    again.begin_transaction()
    again.produce(TOPIC, b"again", partition=0)
    again.commit_transaction(PATIENCE_S)
    shown = read_committed(cluster)
    assert {b"older", b"newer", b"again"} <= shown
    assert b"fenced" not in shown
