"""A member of a plain consumer group: ``python -m tests.support.pipeline.reader``.

Commits what it has read, now and then and when nothing comes, and writes down what it read, and
what was answered. SIGTERM: it leaves the group and ends.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.support.pipeline.journal import Journal, Kind
from tests.support.pipeline.signals import until_told_to_stop

_COMMIT_CHANCE: Final = 0.3
"""Per poll that brought records: some members die with uncommitted ones."""


class Reader:
    """One member."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self._journal = journal
        self._chance = random.Random(options.seed)
        self._next: dict[int, int] = {}
        """The offset behind the last record read, by partition that it has."""
        self._committed: dict[int, int] = {}
        self._topic: str = options.topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": options.session_timeout_ms // 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost
        )

    def step(self) -> None:
        """Poll; note what came; commit now and then."""
        read = [m for m in self._consumer.consume(200, 0.1) if m.error() is None]
        # What was fetched before a partition went to somebody else is not this member's any more.
        read = [message for message in read if message.partition() in self._next]
        if read:
            self._note(read)
        if not read or self._chance.random() < _COMMIT_CHANCE:
            self._commit()

    def close(self) -> None:
        self._commit()
        self._consumer.close()

    def _note(self, read: Sequence[Message]) -> None:
        places = tuple((message.partition() or 0, message.offset() or 0) for message in read)
        keys = tuple((message.key() or b"").decode() for message in read)
        self._journal.note(Kind.READ, places=places, keys=keys)
        for partition, offset in places:
            self._next[partition] = offset + 1

    def _commit(self) -> None:
        places = tuple((p, o) for p, o in self._next.items() if o > self._committed.get(p, 0))
        if not places:
            return
        offsets = [TopicPartition(self._topic, p, offset) for p, offset in places]
        self._journal.note(Kind.OFFSETS_COMMITTING, places=places)
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            self._journal.note(Kind.FAILED, note=f"commit: {error}")
            return
        if all(each.error is None for each in answered):
            self._journal.note(Kind.OFFSETS_COMMITTED, places=places)
            self._committed |= dict(places)

    def _assigned(self, _: Consumer, tps: list[TopicPartition]) -> None:
        self._journal.note(Kind.ASSIGNED, places=tuple((tp.partition, 0) for tp in tps))
        self._next |= {tp.partition: 0 for tp in tps}

    def _lost(self, _: Consumer, tps: list[TopicPartition]) -> None:
        for tp in tps:
            self._next.pop(tp.partition, None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--group", required=True)
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    reader = Reader(options, Journal(options.journal))
    for _ in until_told_to_stop():
        reader.step()
    reader.close()


if __name__ == "__main__":
    main()
