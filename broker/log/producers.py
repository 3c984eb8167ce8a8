"""What a partition remembers of its idempotent producers: enough to tell a retry from a new batch.

A producer numbers its records per partition, from 0 on, in a producer epoch. A leader takes the
batch that continues the numbers, answers one of the last five with the offset it has, and refuses
the rest (KIP-98, KIP-360). Followers and recovery only take note: what is in the log was checked
when a leader took it, and counts whatever it says. So the memory is a function of the log, and a
new leader knows what it holds.

Of a producer that is unknown here any sequence is taken, as Kafka does: its batches may have been
deleted (DeleteRecords), or it was silent for ``producer.id.expiration.ms``.

The markers of transactions count, too. The epoch of a marker becomes the producer's: a coordinator
that gave up on a producer ends its transaction in the next epoch, and from then on what the old
instance still sends is refused. And who wrote the last one is known, so that a coordinator that was
replaced cannot end what its successor has taken over. Pure.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from broker.errors import KafkaError
from broker.log.control_batches import EndMarker
from broker.log.record_batch import TRANSACTIONAL, Batch, BatchHeader
from quorate_proto.v1 import errors_pb2

REMEMBERED_BATCHES: Final = 5
"""What a producer may have in flight (``max.in.flight.requests.per.connection``)."""

_LAST_SEQUENCE: Final = 2**31 - 1
"""Sequences go on at 0 after it."""
_FIELDS: Final = 3
_ACTIVE: Final = -1
_BEFORE_FIRST: Final = -1
"""Last sequence of an epoch in which nothing was sent yet: the next one is 0."""
_ANY_SEQUENCE: Final = -2
"""Last sequence where nothing is known of any: the epoch is known by a marker alone, or by batches
that have no sequence."""
_NO_OFFSET: Final = -1


class Original(NamedTuple):
    """Where the batch is that a producer sent again."""

    base_offset: int
    last_offset: int


class Producer(msgspec.Struct, gc=False, array_like=True):
    """One producer in one partition."""

    epoch: int
    last_sequence: int
    """The next batch begins one beyond it."""
    recent: tuple[int, ...] = ()
    """(last sequence, last offset, offset delta) of its last batches in this epoch, oldest first,
    in one tuple: there may be very many producers. Empty where all of them were truncated."""
    idle_since_ms: int = _ACTIVE
    """When it was first found to have been silent since the look before."""
    coordinator_epoch: int = -1
    """Of the coordinator that ended its last transaction here; -1: none did."""
    marker_offset: int = _NO_OFFSET
    """Where that marker is; -1: it is not in the log any more."""


class _Packed(msgspec.Struct, array_like=True, gc=False):
    """A producer in ``pack_before``. Older releases wrote the first four fields, and read those."""

    producer_id: int
    epoch: int
    last_sequence: int
    recent: tuple[int, ...]
    coordinator_epoch: int = -1
    marker_offset: int = _NO_OFFSET


class Numbered(Protocol):
    """What a batch says of its producer."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def attributes(self) -> int: ...


class PartitionProducers:
    """The producers of one partition by id."""

    __slots__ = ("_by_id", "_where")

    def __init__(self, where: str, producers: Iterable[tuple[int, Producer]] = ()) -> None:
        """``where`` names the partition in messages."""
        self._where = where
        self._by_id = dict(producers)

    def __len__(self) -> int:
        return len(self._by_id)

    def find_originals(self, batches: Sequence[Batch]) -> list[Original | None]:
        """For each batch of one append: where it is already, None if it is new.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH; nothing of the
                append may be taken.
        """
        if len(batches) == 1:
            header = batches[0].header
            producer = self._by_id.get(header.producer_id)
            return [None if producer is None else self._check(producer, header)]
        originals: list[Original | None] = []
        ahead: dict[int, Producer] = {}
        for header, _ in batches:
            producer_id = header.producer_id
            producer = ahead.get(producer_id) or self._by_id.get(producer_id)
            original = None if producer is None else self._check(producer, header)
            if original is None and producer_id >= 0:
                ahead[producer_id] = Producer(header.producer_epoch, _last_sequence(header))
            originals.append(original)
        return originals

    def check_marker(self, marker: EndMarker) -> None:
        """Refuse a marker that a coordinator sent which does not know what has happened since.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._by_id.get(marker.producer_id)
        if producer is None:
            return
        if marker.producer_epoch < producer.epoch:
            raise self._old_epoch(
                f"the end of a transaction of producer {marker.producer_id}",
                marker.producer_epoch,
                producer.epoch,
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                errors_pb2.TRANSACTION_COORDINATOR_FENCED,
                f"{self._where}: the end of a transaction of producer {marker.producer_id} comes "
                f"from coordinator epoch {marker.coordinator_epoch}, epoch "
                f"{producer.coordinator_epoch} has begun: another broker decides now",
            )

    def record(self, header: Numbered, base_offset: int) -> None:
        """The log has this batch, at ``base_offset``, behind all that were recorded before."""
        if header.producer_id < 0:
            return
        if header.base_sequence < 0:
            if header.attributes & TRANSACTIONAL:
                self._in_epoch(header.producer_id, header.producer_epoch)
            return
        delta = header.last_offset_delta
        sequence = (header.base_sequence + delta) & _LAST_SEQUENCE
        batch = (sequence, base_offset + delta, delta)
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            self._by_id[header.producer_id] = Producer(header.producer_epoch, sequence, batch)
            return
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.recent = ()
        producer.last_sequence = sequence
        producer.recent = producer.recent[-_FIELDS * (REMEMBERED_BATCHES - 1) :] + batch
        producer.idle_since_ms = _ACTIVE

    def record_marker(self, marker: EndMarker, offset: int) -> None:
        """The log has this marker, at ``offset``, behind all that was recorded before."""
        producer = self._in_epoch(marker.producer_id, marker.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = offset

    def _in_epoch(self, producer_id: int, epoch: int) -> Producer:
        """The producer, which has just given a sign of life in this epoch."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = Producer(epoch, _ANY_SEQUENCE)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.last_sequence = _BEFORE_FIRST
            producer.recent = ()
        producer.idle_since_ms = _ACTIVE
        return producer

    def truncate_from_end(self, end_offset: int) -> None:
        """The batches that end at or beyond ``end_offset`` are gone.

        A producer can only send again what it sent before the oldest of them that is remembered,
        since it never has more in flight: so that one is what must come next, though the one
        before it may be remembered no more. Epochs stay: whoever began one will go on in it.
        """
        for producer in self._by_id.values():
            if producer.marker_offset >= end_offset:
                producer.marker_offset = _NO_OFFSET
            recent = producer.recent
            kept = _fields_below(recent, end_offset)
            if kept < len(recent):
                sequence, _, delta = recent[kept : kept + _FIELDS]
                producer.last_sequence = (sequence - delta - 1) & _LAST_SEQUENCE
                producer.recent = recent[:kept]

    def clear(self) -> None:
        """The log was emptied, and may go on anywhere."""
        self._by_id.clear()

    def expire(self, now_ms: int, expiration_ms: int, busy: Container[int] = ()) -> None:
        """Forget who has been silent since a look at least ``expiration_ms`` ago.

        ``now_ms``: monotonic. Appends need no clock for it: who appended since the look before
        begins anew. ``busy``: ids of producers with a transaction that is not over; they stay.
        """
        expired = []
        for producer_id, producer in self._by_id.items():
            if producer.idle_since_ms == _ACTIVE or producer_id in busy:
                producer.idle_since_ms = now_ms
            elif now_ms - producer.idle_since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self._by_id[producer_id]

    def get(self, producer_id: int) -> Producer | None:
        """None: it is not known; not the caller's to change."""
        return self._by_id.get(producer_id)

    def items(self) -> Iterator[tuple[int, Producer]]:
        """Every producer that is known, by id; they are not the caller's to change."""
        return iter(self._by_id.items())

    def remembered_offsets(self) -> frozenset[int]:
        """Last offsets of what must stay known: batches that a producer may send again, and the
        markers that tell its epoch and its coordinator's."""
        batches = {
            producer.recent[place + 1]
            for producer in self._by_id.values()
            for place in range(0, len(producer.recent), _FIELDS)
        }
        markers = {producer.marker_offset for producer in self._by_id.values()}
        return frozenset(batches | markers) - {_NO_OFFSET}

    def pack_before(self, offset: int) -> bytes:
        """What is known from batches that end below ``offset``, for ``unpack``; empty: nothing."""
        older: list[tuple[object, ...]] = []
        for producer_id, producer in self._by_id.items():
            recent = producer.recent
            kept = _fields_below(recent, offset)
            has_marker = _NO_OFFSET < producer.marker_offset < offset
            if kept:
                sequence = recent[kept - _FIELDS]
            else:
                sequence = _ANY_SEQUENCE if recent else producer.last_sequence
            known = (producer_id, producer.epoch, sequence, recent[:kept])
            if has_marker:
                older.append((*known, producer.coordinator_epoch, producer.marker_offset))
            elif kept:
                older.append(known)
        return msgspec.msgpack.encode(older) if older else b""

    @classmethod
    def unpack(cls, where: str, packed: bytes) -> "PartitionProducers":
        """What ``pack_before`` gave."""
        if not packed:
            return cls(where)
        older = msgspec.msgpack.decode(packed, type=list[_Packed])
        return cls(
            where,
            (
                (
                    one.producer_id,
                    Producer(
                        one.epoch,
                        one.last_sequence,
                        one.recent,
                        coordinator_epoch=one.coordinator_epoch,
                        marker_offset=one.marker_offset,
                    ),
                )
                for one in older
            ),
        )

    def _old_epoch(self, what: str, epoch: int, known_epoch: int) -> KafkaError:
        return KafkaError(
            errors_pb2.INVALID_PRODUCER_EPOCH,
            f"{self._where}: {what} is of epoch {epoch}, epoch {known_epoch} has begun; let the "
            "newer producer go on, or ask for a new producer id",
        )

    def _check(self, producer: Producer, header: BatchHeader) -> Original | None:
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < producer.epoch:
            raise self._old_epoch(
                f"a batch of producer {header.producer_id}", epoch, producer.epoch
            )
        if first < 0:
            return None
        expected = 0
        if epoch == producer.epoch:
            if producer.last_sequence == _ANY_SEQUENCE:
                return None
            expected = (producer.last_sequence + 1) & _LAST_SEQUENCE
            original = None if first == expected else _original(producer.recent, header)
            if original is not None:
                return original
        if first != expected:
            raise KafkaError(
                errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self._where}: a batch of producer {header.producer_id}, epoch {epoch}, begins "
                f"at sequence {first}, expected is {expected}; send what is missing first, or go "
                "on in a new epoch",
            )
        return None


def _fields_below(recent: tuple[int, ...], offset: int) -> int:
    """How much of ``recent`` is about batches that end below ``offset``."""
    kept = len(recent)
    while kept and recent[kept - 2] >= offset:
        kept -= _FIELDS
    return kept


def _original(recent: tuple[int, ...], header: BatchHeader) -> Original | None:
    delta = header.last_offset_delta
    sequence = _last_sequence(header)
    for place in range(len(recent) - _FIELDS, -1, -_FIELDS):
        if recent[place] == sequence and recent[place + 2] == delta:
            last_offset = recent[place + 1]
            return Original(last_offset - delta, last_offset)
    return None


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return _ANY_SEQUENCE
    return (header.base_sequence + header.last_offset_delta) & _LAST_SEQUENCE
