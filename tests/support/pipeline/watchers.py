"""Watches what other clients are shown meanwhile: committed records, and committed offsets."""

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Final, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.support.pipeline.copier import decode_copy
from tests.support.pipeline.history import Copy

_ASK_S: Final = 2.0
_EVERY_S: Final = 0.05
_STOP_S: Final = 30.0


class _Watcher:
    """Does one thing again and again, in a thread; a context manager."""

    def __init__(self, name: str) -> None:
        self._told_to_stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._told_to_stop.set()
        self._thread.join(_STOP_S)
        assert not self._thread.is_alive(), f"{self._thread.name} did not stop"

    def _run(self) -> None:
        while not self._told_to_stop.is_set():
            self._step()
        self._close()

    def _step(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class LiveOutput(_Watcher):
    """Reads a topic of copies from its beginning, committed ones alone, as they come."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("live-output")
        self.copies: list[Copy] = []
        self._consumer = _consumer(bootstrap, "live-output", "read_committed")
        self._consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        )

    def _step(self) -> None:
        self.copies += [copy for m in self._consumer.consume(500, 0.1) for copy in _copy_of(m)]

    def _close(self) -> None:
        self._consumer.close()


class CommittedOffsets(_Watcher):
    """Asks again and again what a group has committed."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(f"offsets-of-{group}")
        self.name = group
        self.samples: list[dict[int, int]] = []
        self._asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._consumer = _consumer(bootstrap, group, "read_committed")

    def ask(self) -> dict[int, int]:
        """Return the committed offsets by partition; 0: nothing is committed. A partition that
        fails is left out.

        Raises:
            KafkaException: nobody answers.
        """
        answered = self._consumer.committed(self._asked, _ASK_S)
        return {tp.partition: max(tp.offset, 0) for tp in answered if tp.error is None}

    def has_come_to(self, ends: Mapping[int, int]) -> bool:
        """Whether the last answer had these offsets, or later ones."""
        last = self.samples[-1] if self.samples else {}
        return all(last.get(partition, 0) >= end for partition, end in ends.items())

    def _step(self) -> None:
        # A coordinator may be on its way to another broker: the next answer counts.
        with contextlib.suppress(KafkaException):
            self.samples.append(self.ask())
        self._told_to_stop.wait(_EVERY_S)

    def _close(self) -> None:
        self._consumer.close()


def are_transactions_over(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether none is open in the topic: readers of committed records get as far as all others."""
    admin = KafkaAdmin({"bootstrap.servers": bootstrap, "log_level": 0})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}

    def ends(isolation: IsolationLevel) -> dict[int, int]:
        told = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_ASK_S)
        return {tp.partition: future.result().offset for tp, future in told.items()}

    try:
        # In this order, so that what is written in between can only make it untrue.
        return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
    except KafkaException:
        return False


def read_copies(
    bootstrap: str, topic: str, partitions: int, isolation: str, timeout_s: float
) -> list[Copy]:
    """All copies of a topic.

    Raises:
        AssertionError: the end of a partition was not reached in time.
    """
    deadline_s = time.monotonic() + timeout_s
    consumer = _consumer(bootstrap, f"read-{isolation}", isolation)
    found: list[Copy] = []
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        while len(at_end) < partitions:
            assert time.monotonic() < deadline_s, f"only partitions {sorted(at_end)} came to an end"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition() or 0)
                found += _copy_of(message)
    finally:
        consumer.close()
    return found


def _copy_of(message: Message) -> list[Copy]:
    if message.error() is not None:
        return []
    return [decode_copy(message.value() or b"", message.offset() or 0)]


def _consumer(bootstrap: str, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
