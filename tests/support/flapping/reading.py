"""Reads everything that producers have stored, in the order of the logs."""

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.support.flapping.numbers import PARTITIONS
from tests.support.flapping.story import Lane, Read, lanes_of

PATIENCE_S = 90.0


def read_all(bootstrap: str, topics: Sequence[str], *, committed: bool) -> Read:
    """Everything up to the ends of the logs of now; without ``committed``, aborted records too.

    Raises:
        AssertionError: a partition did not come to its end: a transaction hangs, or is offline.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flapping",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    wanted = [
        TopicPartition(topic, p, OFFSET_BEGINNING) for topic in topics for p in range(PARTITIONS)
    ]
    ends = {
        (one.topic, one.partition): consumer.get_watermark_offsets(one, timeout=PATIENCE_S)[1]
        for one in wanted
    }
    try:
        consumer.assign(wanted)
        return lanes_of(_records(consumer, ends))
    finally:
        consumer.close()


def _records(consumer: Consumer, ends: dict[tuple[str, int], int]) -> Iterator[tuple[Lane, int]]:
    deadline_s = time.monotonic() + PATIENCE_S
    left = set(ends)
    while left:
        assert time.monotonic() < deadline_s, f"{sorted(left)} did not come to an end"
        for message in consumer.consume(1_000, timeout=0.2):
            topic, partition, error = message.topic(), message.partition(), message.error()
            assert topic is not None
            assert partition is not None
            if error is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                yield Lane(topic, partition, key.decode()), int(value)
            elif _is_end(error) and (message.offset() or 0) >= ends[topic, partition]:
                left.discard((topic, partition))


def _is_end(error: KafkaError) -> bool:
    return error.code() == KafkaError._PARTITION_EOF
