"""Loads beside ``tests.support.acked_load``: transactions, and a topic that comes and goes."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.support.acked_load import Acknowledged, Consumed, Place
from tests.support.waiting import let_time_pass, wait_until

_RECORDS: Final = 5
_EVERY_S: Final = 0.05
_LIMIT_S: Final = 60.0


class TransactionalLoad:
    """Commits most transactions and aborts every fourth; each has records in all partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="transactional-load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While this lasts, no transaction is under way."""
        with self._turn:
            yield

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                producer = self._new_producer()
                while not self._stop.wait(_EVERY_S):
                    number += 1
                    with self._turn:
                        self._transact(producer, number)
            except KafkaException:
                self._stop.wait(1.0)

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "standing",
                "transaction.timeout.ms": 30_000,
                "socket.timeout.ms": 3_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(_LIMIT_S)
        return producer

    def _transact(self, producer: Producer, number: int) -> None:
        """One transaction; a producer that may not go on raises, and the outcome is unknown."""
        self.unknown.append(number)
        producer.begin_transaction()
        for record in range(_RECORDS):
            value = b"%d %d" % (number, record)
            producer.produce(self._topic, value, partition=record % self._partitions)
        try:
            if number % 4 == 0:
                self._finish(producer.abort_transaction)
                self.aborted.append(number)
            else:
                self._finish(producer.commit_transaction)
                self.committed.append(number)
            self.unknown.remove(number)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._finish(producer.abort_transaction)
                self.unknown.remove(number)
                self.aborted.append(number)
                return
            raise

    def _finish(self, call: object) -> None:
        """End the transaction; what is only slow is asked again."""
        assert callable(call)
        while True:
            try:
                call(_LIMIT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._stop.is_set():
                    raise
                let_time_pass(0.1, "the coordinator is not there yet")


def read_acknowledged(bootstrap: str, topic: str, acknowledged: Acknowledged) -> Consumed:
    """Return every record up to the last acknowledged one of each partition, while more come.

    Raises:
        AssertionError: a partition does not come that far.
    """
    ends: dict[int, int] = {}
    for partition, last in acknowledged.offsets.values():
        ends[partition] = max(ends.get(partition, 0), last)
    found: dict[bytes, list[Place]] = defaultdict(list)
    settings = {"group.id": "acknowledged", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    deadline = time.monotonic() + _LIMIT_S
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in ends])
        while ends:
            assert time.monotonic() < deadline, f"{topic} is not read up to {ends}"
            for message in consumer.consume(1000, timeout=0.2):
                at, offset = message.partition(), message.offset()
                if message.error() is not None or at is None or offset is None:
                    continue  # The client tries again.
                found[message.key() or b""].append((at, offset, message.value() or b""))
                if offset >= ends.get(at, offset + 1):
                    del ends[at]
    finally:
        consumer.close()
    return found


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, set[int]]:
    """Return the records that a reader of committed transactions gets, by transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[int, set[int]] = {}
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        for _ in range(int(_LIMIT_S / 0.2)):
            for message in consumer.consume(1000, timeout=0.2):
                error, partition = message.error(), message.partition()
                if error is None:
                    number, _, record = (message.value() or b"").partition(b" ")
                    found.setdefault(int(number), set()).add(int(record))
                elif error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    at_end.add(partition)
            if len(at_end) == partitions:
                return found
        raise AssertionError(f"of {topic}, only partitions {sorted(at_end)} came to an end")
    finally:
        consumer.close()


def wait_until_settled(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until no transaction is open, while none is begun: the markers of one that is answered
    as committed are written afterwards.

    Raises:
        AssertionError: one stays open.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": "settled", "log_level": 0}
    levels = ("read_committed", "read_uncommitted")
    committed, all_records = (Consumer({**settings, "isolation.level": level}) for level in levels)
    try:
        for partition in range(partitions):
            at = TopicPartition(topic, partition)
            wait_until(
                partial(_is_settled, committed, all_records, at),
                f"the transactions in {topic}-{partition} to be settled",
            )
    finally:
        committed.close()
        all_records.close()


def _is_settled(committed: Consumer, all_records: Consumer, at: TopicPartition) -> bool:
    end = _end(all_records, at)
    return end is not None and _end(committed, at) == end


def _end(consumer: Consumer, at: TopicPartition) -> int | None:
    """Return the end of the partition, as far as this consumer may read."""
    try:
        ends = consumer.get_watermark_offsets(at, timeout=5.0, cached=False)
    except KafkaException:
        return None
    return None if ends is None else int(ends[1])


def assert_transactions_whole(
    committed: list[int], aborted: list[int], found: dict[int, set[int]]
) -> None:
    """Every committed transaction is there as a whole, no aborted one is, and none in part."""
    whole = set(range(_RECORDS))
    lost = [number for number in committed if found.get(number) != whole]
    assert not lost, f"{len(lost)} of {len(committed)} committed transactions are lost: {lost[:5]}"
    shown = [number for number in aborted if number in found]
    assert not shown, f"{len(shown)} aborted transactions are read: {shown[:5]}"
    parts = [number for number, records in found.items() if records != whole]
    assert not parts, f"{len(parts)} transactions are read in part: {parts[:5]}"
