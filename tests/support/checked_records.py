"""A topic with records of every kind of producer, and sums that tell whether each was read once.

    expected = fill(bootstrap, grpc_addresses, Plan("large", leaders=(1, 2, 3), ...))

The sums of a partition are those of its committed records as an unmodified Kafka client consumes
them: how many there are, the sum of their offsets, and the sum of checksums over offset and value.
``sums_of`` asks Spark for the same. (A producer without idempotence may write a record again, so
what it was told of its own records is not all there is.)
"""

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic
from tests.support.waiting import wait_until

TRANSACTION_RECORDS: Final = 2_000
_ABORTED_EVERY: Final = 3
_FLUSH_TIMEOUT_S: Final = 120.0
_FILLER: Final = random.Random(5).randbytes(1 << 20)
_PLAIN: Final[Mapping[str, str | int | bool]] = {
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 256 << 10,
    "queue.buffering.max.messages": 0,
}


class Sums(NamedTuple):
    """The contents of a partition, summed up. Equal sums mean that each record was read once."""

    records: int
    offsets: int
    """The sum of all offsets."""
    checksums: int
    """The sum of the CRC-32 of each offset and value."""


@dataclass(frozen=True)
class Plan:
    """A topic to fill."""

    topic: str
    leaders: Sequence[int]
    """The preferred leader of each partition; the other replicas are the other brokers."""
    brokers: Sequence[int]
    record_bytes: int
    records: Sequence[int]
    """The number of records of each partition and each kind of producer."""
    replicas: int = 3

    @property
    def assignments(self) -> list[list[int]]:
        """The replicas of each partition, the preferred leader first."""
        return [
            [leader, *(one for one in self.brokers if one != leader)][: self.replicas]
            for leader in self.leaders
        ]


def fill(bootstrap: str, grpc_addresses: Sequence[str], plan: Plan) -> dict[int, Sums]:
    """Create the topic, write to it as three producers do, and consume what is committed."""
    with AdminClient(grpc_addresses=grpc_addresses, timeout_ms=30_000) as admin:
        new = NewTopic(name=plan.topic, assignments=plan.assignments)
        admin.create_topics([new])[0].raise_for_error()
        wait_until(
            lambda: (
                [p.leader for p in admin.describe_topics([plan.topic])[0].partitions]
                == list(plan.leaders)
            ),
            f"the leaders of {plan.topic}",
        )
    once = {**_PLAIN, "enable.idempotence": True}
    for settings in ({**_PLAIN, "enable.idempotence": False}, once):
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        _produce(producer, plan)
        assert producer.flush(_FLUSH_TIMEOUT_S) == 0
    paid = {**once, "transactional.id": f"fills-{plan.topic}"}
    _produce_in_transactions(Producer({"bootstrap.servers": bootstrap, **paid}), plan)
    found = {
        partition: _consumed(bootstrap, plan, partition) for partition in range(len(plan.leaders))
    }
    least = 2 * sum(plan.records)
    assert sum(sums.records for sums in found.values()) >= least, "acknowledged records are there"
    return found


def leaders_of(grpc_address: str, topic: str) -> dict[int, int]:
    """The leader of each partition, as one broker knows it; none while it does not answer."""
    try:
        with AdminClient(grpc_addresses=[grpc_address], timeout_ms=5_000) as admin:
            (described,) = admin.describe_topics([topic])
    except QuorateError:
        return {}
    return {one.partition: one.leader for one in described.partitions}


def _produce(producer: Producer, plan: Plan) -> None:
    for partition, value in _values(plan):
        producer.produce(plan.topic, value, partition=partition)
        producer.poll(0)


def _produce_in_transactions(producer: Producer, plan: Plan) -> None:
    """Every third transaction is aborted."""
    producer.init_transactions(60)
    values = list(_values(plan))
    starts = range(0, len(values), TRANSACTION_RECORDS)
    for number, start in enumerate(starts):
        is_aborted = number % _ABORTED_EVERY == 1
        producer.begin_transaction()
        for partition, value in values[start : start + TRANSACTION_RECORDS]:
            producer.produce(plan.topic, value, partition=partition)
            producer.poll(0)
        assert producer.flush(_FLUSH_TIMEOUT_S) == 0
        if is_aborted:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def _consumed(bootstrap: str, plan: Plan, partition: int) -> Sums:
    """Consume a partition to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "sums",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([KafkaPartition(plan.topic, partition, 0)])
    records = offsets = checksums = 0
    while True:
        for message in consumer.consume(1_000, timeout=0.2):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return Sums(records, offsets, checksums)
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            records += 1
            offsets += offset
            checksums += zlib.crc32(b"%d:" % offset + value)


def _values(plan: Plan) -> Iterator[tuple[int, bytes]]:
    """Values of all partitions in turn; no two of a partition are alike."""
    for number in range(max(plan.records)):
        for partition, count in enumerate(plan.records):
            if number < count:
                start = (number * 31 + partition * 7) % (len(_FILLER) - plan.record_bytes)
                yield partition, _FILLER[start : start + plan.record_bytes]


def sums_of(frame: DataFrame) -> dict[int, tuple[Sums, int]]:
    """The sums of each partition as Spark has read it, and how many different offsets it saw."""
    record = F.concat(F.encode(F.col("offset").cast("string"), "UTF-8"), F.lit(b":"), "value")
    rows = (
        frame.groupBy("partition")
        .agg(F.count("*"), F.sum("offset"), F.sum(F.crc32(record)), F.count_distinct("offset"))
        .collect()
    )
    return {row[0]: (Sums(row[1], row[2], row[3]), row[4]) for row in rows}
