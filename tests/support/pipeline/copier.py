"""Consume, transform, produce, in transactions: ``python -m tests.support.pipeline.copier``.

Each record of the input is copied to the partition of the same number of the output, with what it
was made of and in which transaction as its value; offsets go with the copies. Some transactions
are aborted on purpose. SIGTERM: it finishes its transaction and ends; fenced, it ends at once.
"""

import argparse
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.pipeline.history import Copy
from tests.support.pipeline.journal import Journal, Kind
from tests.support.pipeline.signals import until_told_to_stop
from tests.support.waiting import let_time_pass

FENCED_EXIT_CODE: Final = 3
STUCK_EXIT_CODE: Final = 4
"""librdkafka from 2.10 to 2.16 hangs for minutes in send_offsets_to_transaction if the broker that
coordinated the group has been missing from metadata since (its issues 5511 and 5456)."""
_ATTEMPT_S: Final = 5.0
_STUCK_S: Final = 1.5 * _ATTEMPT_S
_PASSING: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""May be tried again. Of a coordinator on its way to another broker the producer's calls say so
themselves, the consumer's do not."""
_PATIENCE_S: Final = 60.0
_GATHER_S: Final = 0.1
_MAX_RECORDS: Final = 250
_ABORT_CHANCE: Final = 0.15


def encode_copy(transaction: str, partition: int, offset: int) -> bytes:
    """The value of a record of the output."""
    return f"{transaction} {partition} {offset}".encode()


def decode_copy(value: bytes, offset: int) -> Copy:
    """``offset``: where the copy itself stands."""
    transaction, partition, source = value.decode().split()
    return Copy((int(partition), int(source)), offset, transaction)


class Fenced(Exception):
    """Another one with this transactional id has begun."""


class Copier:
    """One incarnation of one transactional id."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self._options = options
        self._journal = journal
        self._chance = random.Random(options.seed)
        self._count = 0
        self._gathered: list[Message] = []
        self._membership: Any = None
        """The group's metadata of when its partitions were assigned: of a later generation, which
        may have given them to others, nothing may be committed."""
        common = {
            "bootstrap.servers": options.bootstrap,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._producer = Producer(
            {
                **common,
                "transactional.id": options.name,
                "transaction.timeout.ms": options.transaction_timeout_ms,
                "socket.timeout.ms": 3_000,
                "linger.ms": 1,
            }
        )
        self._retried(lambda: self._producer.init_transactions(_ATTEMPT_S))
        self._consumer = Consumer(
            {
                **common,
                "group.id": options.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": options.session_timeout_ms // 5,
            }
        )
        self._consumer.subscribe(
            [options.input], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost
        )

    def step(self) -> None:
        """One transaction, if there is something to copy.

        Raises:
            Fenced: another one goes on.
        """
        self._gather()
        if not self._gathered:
            return
        try:
            self._copy()
        except KafkaException as error:
            self._journal.note(Kind.FAILED, transaction=self._name, note=str(error))
            self._abort()

    def close(self) -> None:
        self._consumer.close()

    @property
    def _name(self) -> str:
        return f"{self._options.name}/{self._options.seed}/{self._count}"

    def _gather(self) -> None:
        """One by one: a rebalance between two of them takes back those of before."""
        until_s = time.monotonic() + _GATHER_S
        self._gathered.clear()
        while len(self._gathered) < _MAX_RECORDS and (left_s := until_s - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                return
            error = message.error()
            if error is None:
                self._gathered.append(message)
            elif _is_fenced(error):
                raise Fenced

    def _copy(self) -> None:
        self._count += 1
        sources = tuple((m.partition() or 0, m.offset() or 0) for m in self._gathered)
        self._journal.note(Kind.BEGUN, transaction=self._name, places=sources)
        self._producer.begin_transaction()
        for message, (partition, offset) in zip(self._gathered, sources, strict=True):
            value = encode_copy(self._name, partition, offset)
            self._producer.produce(
                self._options.output, value, key=message.key(), partition=partition
            )
        if self._chance.random() < _ABORT_CHANCE:
            if self._chance.random() < 0.5:
                self._send_offsets(sources)
            self._producer.flush(_ATTEMPT_S)
            self._abort()
            return
        self._send_offsets(sources)
        self._journal.note(Kind.COMMITTING, transaction=self._name)
        self._retried(lambda: self._producer.commit_transaction(_ATTEMPT_S))
        self._journal.note(Kind.COMMITTED, transaction=self._name)

    def _send_offsets(self, sources: tuple[tuple[int, int], ...]) -> None:
        behind = {partition: offset + 1 for partition, offset in sources}
        offsets = [TopicPartition(self._options.input, p, o) for p, o in behind.items()]

        def send() -> None:
            watchdog = threading.Timer(_STUCK_S, os._exit, [STUCK_EXIT_CODE])
            watchdog.start()
            try:
                self._producer.send_offsets_to_transaction(offsets, self._membership, _ATTEMPT_S)
            finally:
                watchdog.cancel()

        self._retried(send)

    def _abort(self) -> None:
        self._journal.note(Kind.ABORTING, transaction=self._name)
        self._retried(lambda: self._producer.abort_transaction(_ATTEMPT_S))
        self._journal.note(Kind.ABORTED, transaction=self._name)
        self._rewind()

    def _rewind(self) -> None:
        """Go back to what is committed by this group, whoever committed it. No rebalance is served
        here, so what is assigned stays so."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        for tp in self._retried(lambda: self._consumer.committed(assigned, _ATTEMPT_S)):
            offset = tp.offset if tp.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(TopicPartition(tp.topic, tp.partition, offset))

    def _retried(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the client returns
        """Again while the client says that it may be tried again.

        Raises:
            Fenced: another one goes on.
            KafkaException: the transaction is to be aborted.
        """
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return call()
            except KafkaException as error:
                what = error.args[0]
                if _is_fenced(what):
                    raise Fenced from error
                again = what.retriable() or what.code() in _PASSING
                if what.txn_requires_abort() or not again:
                    raise
                self._journal.note(Kind.FAILED, note=f"again: {error}")
                if time.monotonic() > until_s:
                    raise
                let_time_pass(0.05, "the brokers may be ready the next time")

    def _assigned(self, _: Consumer, tps: list[TopicPartition]) -> None:
        self._gathered.clear()
        self._journal.note(Kind.ASSIGNED, places=tuple((tp.partition, 0) for tp in tps))
        self._membership = self._consumer.consumer_group_metadata()

    def _lost(self, *_: object) -> None:
        self._gathered.clear()


def _is_fenced(error: KafkaError) -> bool:
    """Fatal is what no retry and no abort can mend: of one of ours, that it has a successor."""
    return bool(error.fatal()) or error.code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="the transactional id")
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    parser.add_argument("--transaction-timeout-ms", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    journal = Journal(options.journal)
    try:
        copier = Copier(options, journal)
        for _ in until_told_to_stop():
            copier.step()
        copier.close()
    except Fenced as fenced:
        journal.note(Kind.FENCED, note=str(fenced.__cause__ or ""))
        sys.exit(FENCED_EXIT_CODE)


if __name__ == "__main__":
    main()
