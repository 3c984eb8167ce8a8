"""The content of dead letters (KIP-1191): headers that say where the record is and why it is dead,
and, if the group wants it, what the record has."""

from typing import Final, NamedTuple

from quorate.broker.coordinator.share.state.dead_records import DeadRecords
from quorate.broker.log.batches.own_records import Header, encoded_record
from quorate.broker.log.batches.record_batch import HEADER_BYTES, own_batch
from quorate.common.types import TopicId, TopicPartition

HEADER_PREFIX: Final = b"__dlq.errors."
"""The beginning of the names of the headers that brokers add. Those of the record that begin so are
left out: nobody but a broker says where a dead letter comes from."""

BATCH_BYTES: Final = 256 << 10
"""The size at which a batch is complete. A larger record has a batch to itself."""


class Content(NamedTuple):
    """The key, the value and the headers of a record."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


NOTHING: Final = Content()


class Source(NamedTuple):
    """The share-partition that dead records come from, at its leader."""

    group_id: str
    tp: TopicPartition
    topic_id: TopicId
    leader_epoch: int


def headers_of(source: Source, dead: DeadRecords, offset: int) -> tuple[Header, ...]:
    """Return the headers that a broker adds; all values are text."""
    said = {
        b"topic": source.tp.topic,
        b"partition": str(source.tp.partition),
        b"offset": str(offset),
        b"group": source.group_id,
        b"delivery.count": str(dead.delivery_count),
        b"message": dead.reason.value,
    }
    return tuple((HEADER_PREFIX + name, value.encode()) for name, value in said.items())


class DeadLetterBatch:
    """A record batch of dead letters that is being filled."""

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max`` is the largest batch that the topic takes."""
        self._bytes_max = bytes_max
        self._records = bytearray()
        self.count = 0

    def add(self, headers: tuple[Header, ...], content: Content) -> bool:
        """Add a dead letter, and return whether there was room for it.

        A record that the topic does not take even alone leaves its content behind.
        """
        record = self._encoded(headers, content)
        if self.count and self._size_with(record) > min(BATCH_BYTES, self._bytes_max):
            return False
        if self._size_with(record) > self._bytes_max:
            record = self._encoded(headers, NOTHING)
        self._records += record
        self.count += 1
        return True

    def _encoded(self, headers: tuple[Header, ...], content: Content) -> bytes:
        kept = tuple(one for one in content.headers if not one[0].startswith(HEADER_PREFIX))
        return encoded_record(self.count, content.key, content.value, kept + headers)

    def _size_with(self, record: bytes) -> int:
        return HEADER_BYTES + len(self._records) + len(record)

    def encoded(self, timestamp_ms: int) -> bytes:
        """Return the batch. ``timestamp_ms`` is the time of writing, as in Kafka: the time of the
        record may be beyond the retention of the topic."""
        return own_batch(bytes(self._records), self.count, timestamp_ms)
