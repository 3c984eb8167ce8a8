"""A worker with a client library: it takes records, and accepts them one poll at a time."""

import contextlib
import threading
import time
from typing import Final

from confluent_kafka import KafkaException, Message, ShareConsumer

from tests.queues.history import Record
from tests.queues.ledger import Ledger

POLL_S: Final = 0.2
WORK_S: Final = 0.005
"""How long a record takes: brokers are to be killed while workers have records in hand."""


class Worker:
    """A thread with a share consumer of its own. A context manager."""

    def __init__(
        self, bootstrap: str, group_id: str, topic: str, name: str, ledger: Ledger
    ) -> None:
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "client.id": name,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 25,
            "log_level": 0,
        }
        self._topic = topic
        self._name = name
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = ShareConsumer(self._config)
        try:
            consumer.subscribe([self._topic])
            while not self._stop.is_set():
                with contextlib.suppress(KafkaException):
                    self._work(consumer)
        finally:
            with contextlib.suppress(KafkaException):
                consumer.close()

    def _work(self, consumer: ShareConsumer) -> None:
        messages = [one for one in consumer.poll(timeout=POLL_S) or () if one.error() is None]
        records = [_record(one) for one in messages]
        self._ledger.seen(self._name, records)
        if not messages:
            return
        time.sleep(WORK_S * len(messages))
        try:
            for message in messages:
                consumer.acknowledge(message)
            outcomes = consumer.commit_sync(timeout=20)
        except KafkaException:
            self._ledger.unknown(records)
            raise
        for tp, error in (outcomes or {}).items():
            mine = [record for record in records if record.partition == tp.partition]
            if error is None:
                self._ledger.settled(self._name, mine)
            else:
                # It may have been written before the leader died.
                self._ledger.unknown(mine)


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset)
