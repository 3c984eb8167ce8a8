"""Reads what transactions have committed, until all that is expected is there."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_POLL_S: Final = 0.5


def committed_records(
    bootstrap: str, topic: str, partitions: int, is_complete: Callable[[], bool], timeout_s: float
) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield keys and values of a topic from its beginning on, in the order of each partition.

    After ``is_complete`` it goes on until nothing comes for a while, because what is there twice
    comes last.

    Raises:
        AssertionError: not all was there within ``timeout_s``.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-committed-records",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(partitions)])
    end_s = time.monotonic() + timeout_s
    silent_polls = 0
    try:
        while silent_polls < 10:
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                silent_polls = 0
                value = message.value()
                assert value is not None
                yield message.key(), value
            elif is_complete():
                silent_polls += 1
            assert time.monotonic() < end_s, f"{topic} was not complete within {timeout_s} s"
    finally:
        consumer.close()
