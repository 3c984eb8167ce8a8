"""Records of every kind, and what confluent-kafka consumes of them as Arrow.

Sizes from nothing to 1 MB, nulls and empty ones, headers with repeated names, nulls and bytes that
are no UTF-8, times out of order; each partition holds batches of all codecs, one after the other.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUE_BYTES_MAX = 1_000_000
REQUEST_BYTES_MAX = 1_048_588
STRETCH_RECORDS_MAX = 400
"""Records that one producer writes to one partition before another takes its turn."""
TIME_MS = 1_700_000_000_000
FLUSH_TIMEOUT_S = 120.0
CONSUME_TIMEOUT_S = 60.0
CONSUMED_AT_ONCE = 20_000

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The schema of what is consumed: the columns of the Spark source, but for the topic."""

Headers = list[tuple[str, str | bytes | None]]
_TIMESTAMP_TYPES = {1: 0, 2: 1}
"""librdkafka's number of a kind of time → Kafka's."""


@dataclass
class MixedRecords:
    """Makes records; equal seeds make equal ones. ``large``: one record of this many is large."""

    seed: int
    large: int = 1_000

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        noise = self._random.randbytes(VALUE_BYTES_MAX // 2)
        # Half of it compresses well and half not at all.
        self._filler = noise + (b"the quick brown fox jumps over the lazy dog. " * 12_000)
        self._made = 0

    def key(self) -> bytes | None:
        kind = self._random.random()
        if kind < 0.3:
            return None
        return b"" if kind < 0.33 else self._bytes(int(kind * 40))

    def value(self) -> bytes | None:
        kind = self._random.random()
        if kind < 0.03:
            return None
        if kind < 0.06:
            return b""
        if kind * self.large > self.large - 1:
            return self._bytes(int(VALUE_BYTES_MAX * self._random.random() ** 3))
        return self._bytes(int(kind * 100))

    def headers(self) -> Headers | None:
        if self._random.random() < 0.8:
            return None
        return [self._header() for _ in range(self._random.randrange(4))]

    def timestamp_ms(self) -> int:
        self._made += 1
        return TIME_MS + self._made // 3 + self._random.randrange(-500, 500)

    def _header(self) -> tuple[str, bytes | None]:
        name = self._random.choice(("h", "trace", "größe", ""))
        return name, self._random.choice((None, b"", b"\xff\x00", self._bytes(20)))

    def _bytes(self, size: int) -> bytes:
        start = self._random.randrange(len(self._filler) - size)
        return self._filler[start : start + size]


def produce_mixed(
    bootstrap: str, topic: str, counts: Sequence[int], *, seed: int, large: int = 1_000
) -> None:
    """``counts[n]`` records in partition n, by one producer per codec in turn.

    Raises:
        AssertionError: a record was not acknowledged.
    """
    records, chance = MixedRecords(seed, large), random.Random(seed)
    failures: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producers = [_producer(bootstrap, codec, delivered) for codec in CODECS]
    if max(counts, default=0):
        # Chance alone may not make one.
        producers[0].produce(topic, bytes(VALUE_BYTES_MAX), partition=_first_open(counts))
    left = list(counts)
    left[_first_open(counts)] -= 1
    while any(left):
        partition = chance.choice([n for n, count in enumerate(left) if count])
        producer = chance.choice(producers)
        stretch = min(left[partition], chance.randrange(1, STRETCH_RECORDS_MAX))
        left[partition] -= stretch
        for _ in range(stretch):
            producer.produce(
                topic,
                records.value(),
                records.key(),
                partition=partition,
                timestamp=records.timestamp_ms(),
                headers=records.headers(),
            )
        producer.poll(0)
    for producer in producers:
        assert producer.flush(FLUSH_TIMEOUT_S) == 0
    assert failures == []


def consume_partition(bootstrap: str, topic: str, partition: int, count: int) -> pa.Table:
    """The first ``count`` records of a partition as confluent-kafka gives them; see `SCHEMA`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reference",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        batches = list(_consumed(consumer, count))
    finally:
        consumer.close()
    return pa.Table.from_batches(batches, SCHEMA)


def _consumed(consumer: Consumer, count: int) -> Iterator[pa.RecordBatch]:
    left = count
    while left:
        messages = consumer.consume(min(CONSUMED_AT_ONCE, left), CONSUME_TIMEOUT_S)
        assert messages, f"nothing came after {count - left} of {count} records"
        left -= len(messages)
        yield _as_arrow(messages)


def _as_arrow(messages: Sequence[Message]) -> pa.RecordBatch:
    errors = [message.error() for message in messages if message.error() is not None]
    assert errors == []
    times = [message.timestamp() for message in messages]
    columns: Mapping[str, Sequence[object]] = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": [time_ms * 1000 for _, time_ms in times],
        "timestampType": [_TIMESTAMP_TYPES[kind] for kind, _ in times],
        "headers": [message.headers() or None for message in messages],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


def _first_open(counts: Sequence[int]) -> int:
    return next(n for n, count in enumerate(counts) if count)


def _producer(bootstrap: str, codec: str, delivered: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": REQUEST_BYTES_MAX,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1 << 20,
            "on_delivery": delivered,
        }
    )
