"""Unmodified Kafka clients behind one small vocabulary, so that a test is written once for all.

Each creates a topic, produces with acks=all to given partitions, lists end offsets and consumes by
assign from the beginning. Values are bytes; what is read back comes per partition, in log order.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.cimpl

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin

from quorate_proto.v1 import errors_pb2

PATIENCE_S = 30.0

ByPartition = dict[int, list[bytes]]


class Client(Protocol):
    """``partitions`` are 0 to n - 1 throughout."""

    name: str

    def create(self, topic: str, partitions: int, replication_factor: int) -> None: ...

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None: ...

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]: ...

    def consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition: ...


class TookTooLong(AssertionError):
    """A client did not get what it waited for."""


def deadline() -> float:
    return time.monotonic() + PATIENCE_S


class Confluent:
    """confluent-kafka, which is librdkafka. Idempotent, with a group id: its users' usual way."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}

    def create(self, topic: str, partitions: int, replication_factor: int) -> None:
        admin = confluent_kafka.admin.AdminClient(self._common)
        new = confluent_kafka.cimpl.NewTopic(topic, partitions, replication_factor)
        for future in admin.create_topics([new], request_timeout=PATIENCE_S).values():
            future.result()

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        failures: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = confluent_kafka.Producer(
            {**self._common, "acks": "all", "enable.idempotence": True}
        )
        for partition, items in values.items():
            for item in items:
                producer.produce(topic, item, partition=partition, on_delivery=delivered)
                producer.poll(0)
        left = producer.flush(PATIENCE_S)
        assert (left, failures) == (0, [])

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        consumer = self._consumer()
        try:
            return {
                partition: consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(topic, partition), PATIENCE_S
                )[1]
                for partition in range(partitions)
            }
        finally:
            consumer.close()

    def consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition:
        consumer = self._consumer()
        got: ByPartition = {partition: [] for partition in counts}
        end = deadline()
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, p) for p in counts])
            while sum(map(len, got.values())) < sum(counts.values()):
                if time.monotonic() > end:
                    raise TookTooLong({p: len(items) for p, items in got.items()})
                for message in consumer.consume(1000, 0.1):
                    error = message.error()
                    if error is not None and error.code() == errors_pb2.NOT_COORDINATOR:
                        continue  # The offsets topic was just made. librdkafka asks again.
                    assert error is None, error
                    got[message.partition() or 0].append(message.value() or b"")
        finally:
            consumer.close()
        return got

    def _consumer(self) -> "confluent_kafka.Consumer":
        return confluent_kafka.Consumer(
            {
                **self._common,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )


class KafkaPython:
    """kafka-python, pure Python; idempotent by default."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @contextlib.contextmanager
    def admin(self) -> "Iterator[kafka.admin.KafkaAdminClient]":
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    def create(self, topic: str, partitions: int, replication_factor: int) -> None:
        with self.admin() as admin:
            admin.create_topics([kafka.admin.NewTopic(topic, partitions, replication_factor)])

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        try:
            sent = [
                producer.send(topic, item, partition=partition)
                for partition, items in values.items()
                for item in items
            ]
            producer.flush(PATIENCE_S)
            for future in sent:
                future.get(PATIENCE_S)
        finally:
            producer.close()

    def transactional(self, transactional_id: str) -> kafka.KafkaProducer:
        """A producer, for the caller to close."""
        return kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id, acks="all"
        )

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap)
        try:
            found = consumer.end_offsets(
                [kafka.TopicPartition(topic, partition) for partition in range(partitions)]
            )
            return {tp.partition: offset for tp, offset in found.items()}
        finally:
            consumer.close()

    def consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id="g",
        )
        got: ByPartition = {partition: [] for partition in counts}
        end = deadline()
        try:
            consumer.assign([kafka.TopicPartition(topic, partition) for partition in counts])
            while sum(map(len, got.values())) < sum(counts.values()):
                if time.monotonic() > end:
                    raise TookTooLong({p: len(items) for p, items in got.items()})
                for tp, records in consumer.poll(timeout_ms=200).items():
                    got[tp.partition] += [record.value for record in records]
        finally:
            consumer.close()
        return got

    @contextlib.contextmanager
    def in_rack(self, rack: str, topic: str, partitions: int) -> "Iterator[kafka.KafkaConsumer]":
        """A reader of everything, without a group, that looks often who leads."""
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_rack=rack,
            auto_offset_reset="none",
            metadata_max_age_ms=1_000,
        )
        consumer.assign([kafka.TopicPartition(topic, p) for p in range(partitions)])
        consumer.seek_to_beginning()
        try:
            yield consumer
        finally:
            consumer.close()

    @contextlib.contextmanager
    def in_group(self, group_id: str, topic: str) -> "Iterator[kafka.KafkaConsumer]":
        """A member of a group; without a committed offset it begins at the end."""
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group_id,
            auto_offset_reset="latest",
        )
        try:
            yield consumer
        finally:
            consumer.close()


class AioKafka:
    """aiokafka, idempotent."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str, partitions: int, replication_factor: int) -> None:
        asyncio.run(self._create(topic, partitions, replication_factor))

    async def _create(self, topic: str, partitions: int, replication_factor: int) -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            new = aiokafka.admin.NewTopic(topic, partitions, replication_factor)
            response = await admin.create_topics([new])
            assert [error[1] for error in response.topic_errors] == [0]
        finally:
            await admin.close()

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        asyncio.run(self._produce(topic, values))

    async def _produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=True
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, item, partition=partition)
                for partition, items in values.items()
                for item in items
            ]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return asyncio.run(self._end_offsets(topic, partitions))

    async def _end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            found = await consumer.end_offsets(
                [aiokafka.TopicPartition(topic, partition) for partition in range(partitions)]
            )
            return {tp.partition: offset for tp, offset in found.items()}
        finally:
            await consumer.stop()

    def consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition:
        return asyncio.run(asyncio.wait_for(self._consume(topic, counts), PATIENCE_S))

    async def _consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id="g",
        )
        await consumer.start()
        got: ByPartition = {partition: [] for partition in counts}
        try:
            consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in counts])
            while sum(map(len, got.values())) < sum(counts.values()):
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    got[tp.partition] += [record.value for record in records]
        finally:
            await consumer.stop()
        return got


class Kcat:
    """kcat, the command line tool; it creates topics by asking for their metadata."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def missing() -> bool:
        return shutil.which("kcat") is None

    def create(self, topic: str, partitions: int, replication_factor: int) -> None:
        """kcat can't create topics; confluent-kafka does it for it."""
        Confluent(self._bootstrap).create(topic, partitions, replication_factor)

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, items in values.items():
            self._run(
                "-P", "-t", topic, "-p", str(partition), "-X", "acks=all", stdin=b"\n".join(items)
            )

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        found = {}
        for partition in range(partitions):
            answer = self._run("-Q", "-t", f"{topic}:{partition}:-1").decode()
            found[partition] = int(answer.rsplit(maxsplit=1)[-1])
        return found

    def consume(self, topic: str, counts: Mapping[int, int]) -> ByPartition:
        got = {}
        for partition, count in counts.items():
            lines = self._run(
                *("-C", "-t", topic, "-p", str(partition)),
                *("-o", "beginning", "-c", str(count), "-f", "%s\n"),
            )
            got[partition] = lines.splitlines()
        return got

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", "-q", "-b", self._bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            env=dict(os.environ),
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


CLIENTS: list[type[Confluent] | type[KafkaPython] | type[AioKafka] | type[Kcat]] = [
    Confluent,
    KafkaPython,
    AioKafka,
    Kcat,
]
