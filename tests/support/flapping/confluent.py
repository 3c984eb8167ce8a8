"""Producers of confluent-kafka, which is librdkafka, under an ISR that flaps."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.support.flapping.numbers import SLOW, UNANSWERED_MAX, Numbers, transaction_ends_in_abort
from tests.support.flapping.story import Sent, Story

PATIENCE_S = 60.0
RECORDS_PER_TRANSACTION = 20


class ConfluentLoad:
    """Runs one producer in a thread until it is stopped.

    ``transactional``: it writes transactions, and aborts some. Otherwise it is idempotent only.
    """

    def __init__(
        self, name: str, bootstrap: str, topics: Sequence[str], every_s: float, transactional: bool
    ) -> None:
        self.name = name
        self.story = Story()
        self._numbers = Numbers(name, topics)
        self._every_s = every_s
        self._transactional = transactional
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "client.id": name,
            "linger.ms": 0,
            "batch.num.messages": 1 if name.startswith(SLOW) else 1_000,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
            "log_level": 0,
        }
        if transactional:
            self._settings |= {"transactional.id": name, "transaction.timeout.ms": 20_000}
        else:
            self._settings |= {"statistics.interval.ms": 100, "stats_cb": self._note_epochs}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop producing, and wait until all is answered."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def _run(self) -> None:
        try:
            if self._transactional:
                self._write_transactions()
            else:
                self._write()
        except Exception as error:
            self.story.failures.append(f"{self.name} ended: {error!r}")
            raise

    def _write(self) -> None:
        producer = Producer(self._settings)
        while not self._stop.wait(self._every_s):
            self._send(producer, self._numbers.next(), self.story.acknowledged)
            producer.poll(0)
            while len(producer) > UNANSWERED_MAX and not self._stop.is_set():
                producer.poll(0.1)
        left = producer.flush(PATIENCE_S)
        if left:
            self.story.failures.append(f"{self.name}: {left} were never answered")

    def _note_epochs(self, statistics: str) -> None:
        self.story.epochs = max(self.story.epochs, json.loads(statistics)["eos"]["producer_epoch"])

    def _send(self, producer: Producer, sent: Sent, delivered: set[Sent]) -> None:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                delivered.add(sent)
            else:
                self.story.failures.append(f"{self.name}: {sent}: {error}")

        lane = sent.lane
        producer.produce(
            lane.topic,
            key=lane.producer.encode(),
            value=b"%d" % sent.number,
            partition=lane.partition,
            on_delivery=on_delivery,
        )

    def _write_transactions(self) -> None:
        producer = self._begin_anew()
        count = 0
        while not self._stop.is_set():
            count += 1
            wanted = [self._numbers.next() for _ in range(RECORDS_PER_TRANSACTION)]
            if not self._write_one(producer, wanted, commit=not transaction_ends_in_abort(count)):
                producer = self._begin_anew()

    def _begin_anew(self) -> Producer:
        """A producer that has ended whatever the one before it left open."""
        producer = Producer(self._settings)
        producer.init_transactions(PATIENCE_S)
        return producer

    def _write_one(self, producer: Producer, wanted: Sequence[Sent], *, commit: bool) -> bool:
        """Write a transaction. Return whether the producer can go on."""
        delivered: set[Sent] = set()
        is_committing = False
        try:
            producer.begin_transaction()
            for sent in wanted:
                self._send(producer, sent, delivered)
                producer.poll(0)
                self._stop.wait(self._every_s)
            if commit:
                is_committing = True
                self._until_done(producer.commit_transaction)
                self.story.acknowledged |= set(wanted)
                return True
            # EndTxn may overtake what adds partitions otherwise, which librdkafka takes for fatal.
            producer.flush(PATIENCE_S)
            self._until_done(producer.abort_transaction)
        except KafkaException as failure:
            return self._give_up(producer, failure.args[0], wanted, is_committing)
        self.story.aborted |= set(wanted)
        return True

    def _give_up(
        self, producer: Producer, error: KafkaError, wanted: Sequence[Sent], is_committing: bool
    ) -> bool:
        if error.txn_requires_abort():
            self._until_done(producer.abort_transaction)
            self.story.aborted |= set(wanted)
            return True
        self.story.failures.append(f"{self.name} begins anew: {error}")
        if is_committing:
            self.story.uncertain.append(frozenset(wanted))
        else:
            self.story.aborted |= set(wanted)
        return False

    def _until_done(self, end: Any) -> None:  # noqa: ANN401 - commit or abort
        while True:
            try:
                end(PATIENCE_S)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return
