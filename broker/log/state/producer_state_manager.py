"""The producer state of a partition, by which a leader tells a retry from a new batch.

A producer numbers its records per partition, from 0 on, in a producer epoch. A leader appends the
batch that continues the sequence. For one of the last five batches it returns the offset that the
log has, and it refuses all others (KIP-98, KIP-360). Followers and recovery only record batches: a
batch in the log was checked when a leader appended it, and is valid whatever it says. The producer
state is therefore a function of the log, and a new leader has the state that the old one had.

Any sequence is accepted from a producer that is not known here, as in Kafka: its batches may have
been deleted (DeleteRecords), or it was idle for ``producer.id.expiration.ms``. A replica that is
built anew after retention has deleted the last batches of a producer does not know it either. If
such a replica leads, it stores a retry of a deleted batch once more.

Transaction markers change the state, too. The epoch of a marker becomes the producer's: a
coordinator that gives up on a producer ends its transaction in the next epoch, and batches of the
old instance are refused from then on. The epoch of the coordinator that wrote the last marker is
kept, so that a replaced coordinator cannot end a transaction that its successor has taken over.
This module is pure.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import TRANSACTIONAL, Batch, BatchHeader
from quorate_proto.v1 import errors_pb2

REMEMBERED_BATCHES: Final = 5
"""The number of batches that a producer may have in flight
(``max.in.flight.requests.per.connection``)."""

_LAST_SEQUENCE: Final = 2**31 - 1
"""The largest sequence number; the next one is 0."""
_FIELDS: Final = 3
_ACTIVE: Final = -1
_BEFORE_FIRST: Final = -1
"""The last sequence of an epoch in which nothing was sent yet: the next sequence is 0."""
_ANY_SEQUENCE: Final = -2
"""The last sequence where none is known: the epoch is known only from a marker, or from batches
without a sequence."""
_NO_OFFSET: Final = -1


class DuplicateBatch(NamedTuple):
    """The offsets in the log of a batch that the producer sent again."""

    base_offset: int
    last_offset: int


class ProducerStateEntry(msgspec.Struct, gc=False, array_like=True):
    """The state of one producer in one partition."""

    epoch: int
    last_sequence: int
    """The sequence of its last record. Its next batch begins one after it."""
    recent: tuple[int, ...] = ()
    """The (last sequence, last offset, offset delta) of its last batches in this epoch, oldest
    first, in one flat tuple because there may be very many producers. It is empty if all of the
    batches were truncated."""
    idle_since_ms: int = _ACTIVE
    """The time at which the producer was first found to have been idle since the check before."""
    coordinator_epoch: int = -1
    """The epoch of the coordinator that ended its last transaction here, or -1 if there was
    none."""
    marker_offset: int = _NO_OFFSET
    """The offset of that marker, or -1 if it is no longer in the log."""

    def may_take(self, header: BatchHeader) -> bool:
        """Say whether a batch can be a new one here: not of an old epoch, nor the last one again.

        This is no decision but an assertion: ``find_duplicates`` has decided before.
        """
        if header.producer_epoch != self.epoch or header.base_sequence < 0:
            return header.producer_epoch >= self.epoch
        return not self.recent or _last_sequence(header) != self.recent[-_FIELDS]

    def append(self, epoch: int, sequence: int, batch: tuple[int, int, int]) -> None:
        """Record a batch that ends at ``sequence``; ``batch`` is its part of ``recent``."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.recent = ()
        self.last_sequence = sequence
        self.recent = self.recent[-_FIELDS * (REMEMBERED_BATCHES - 1) :] + batch
        self.idle_since_ms = _ACTIVE

    def enter_epoch(self, epoch: int) -> None:
        """Record that the producer is active in ``epoch``, and has sent nothing if it is new."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.last_sequence = _BEFORE_FIRST
            self.recent = ()
        self.idle_since_ms = _ACTIVE

    def end_transaction(self, coordinator_epoch: int, marker_offset: int) -> None:
        """Record the marker that ended the producer's last transaction."""
        self.coordinator_epoch = coordinator_epoch
        self.marker_offset = marker_offset

    def truncate(self, end_offset: int) -> None:
        """Remove the batches that end at or beyond ``end_offset``, and a marker there."""
        if self.marker_offset >= end_offset:
            self.marker_offset = _NO_OFFSET
        kept = _fields_below(self.recent, end_offset)
        if kept < len(self.recent):
            sequence, _, delta = self.recent[kept : kept + _FIELDS]
            self.last_sequence = (sequence - delta - 1) & _LAST_SEQUENCE
            self.recent = self.recent[:kept]

    def begin_idle(self, now_ms: int) -> None:
        """Record that a check at ``now_ms`` found the producer idle; an append resets this."""
        self.idle_since_ms = now_ms


class _Packed(msgspec.Struct, array_like=True, gc=False):
    """A producer as ``pack_before`` stores it. Older releases wrote the first four fields, and can
    read this form."""

    producer_id: int
    epoch: int
    last_sequence: int
    recent: tuple[int, ...]
    coordinator_epoch: int = -1
    marker_offset: int = _NO_OFFSET


class ProducerFields(Protocol):
    """The fields of a batch that its producer set."""

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


class ProducerStateManager:
    """The state of the producers of one partition, by producer id."""

    __slots__ = ("_by_id", "_where")

    def __init__(
        self, where: str, producers: Iterable[tuple[int, ProducerStateEntry]] = ()
    ) -> None:
        """``where`` names the partition in messages."""
        self._where = where
        self._by_id = dict(producers)

    def __len__(self) -> int:
        return len(self._by_id)

    def find_duplicates(self, batches: Sequence[Batch]) -> list[DuplicateBatch | None]:
        """Check the batches of one append. Return for each batch its place in the log, or None if
        it is new.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH. Nothing of the
                append may be written then.
        """
        if len(batches) == 1:
            header = batches[0].header
            producer = self._by_id.get(header.producer_id)
            return [None if producer is None else self._check(producer, header)]
        originals: list[DuplicateBatch | None] = []
        ahead: dict[int, ProducerStateEntry] = {}
        for header, _ in batches:
            producer_id = header.producer_id
            producer = ahead.get(producer_id) or self._by_id.get(producer_id)
            original = None if producer is None else self._check(producer, header)
            if original is None and producer_id >= 0:
                ahead[producer_id] = ProducerStateEntry(
                    header.producer_epoch, _last_sequence(header)
                )
            originals.append(original)
        return originals

    def find_originals(self, batches: Iterable[Batch]) -> DuplicateBatch | None:
        """Return the first and last offset of batches in the log, or None if it certainly has none
        of them.

        In contrast to ``find_duplicates``, a batch may be ahead of others that are missing.

        Raises:
            KafkaError: the log may have one, but it is not known where: INVALID_PRODUCER_EPOCH if a
                newer epoch has begun, OUT_OF_ORDER_SEQUENCE_NUMBER if it begins at a sequence that
                was taken, and no remembered batch is the same. NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                the log has some of them only.
        """
        found = [self._find_original(header) for header, _ in batches]
        known = [original for original in found if original is not None]
        if not known:
            return None
        if len(known) < len(found):
            raise KafkaError(
                errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{self._where}: the log has {len(known)} of the {len(found)} batches; send all of "
                "them again",
            )
        return DuplicateBatch(known[0].base_offset, max(one.last_offset for one in known))

    def _find_original(self, header: BatchHeader) -> DuplicateBatch | None:
        producer = self._by_id.get(header.producer_id)
        if producer is None or header.base_sequence < 0:
            return None
        try:
            return self._check(producer, header)
        except KafkaError:
            expected = self.expected_sequence(header)
            is_ahead = expected is not None and precedes(expected, header.base_sequence)
            if is_ahead and header.producer_epoch >= producer.epoch:
                return None
            raise

    def expected_sequence(self, header: ProducerFields) -> int | None:
        """Return the first sequence of the batch that its producer must send next, or None if a
        batch with any sequence is appended."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return None
        if producer.epoch != header.producer_epoch:
            return 0
        if producer.last_sequence == _ANY_SEQUENCE:
            return None
        return (producer.last_sequence + 1) & _LAST_SEQUENCE

    def check_marker(self, marker: EndMarker) -> None:
        """Refuse a marker from a coordinator that was replaced, or of an old producer epoch.

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

    def record(self, header: ProducerFields, base_offset: int) -> None:
        """Record that the log has this batch at ``base_offset``, after all that were recorded
        before."""
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
            self._by_id[header.producer_id] = ProducerStateEntry(
                header.producer_epoch, sequence, batch
            )
            return
        producer.append(header.producer_epoch, sequence, batch)

    def record_marker(self, marker: EndMarker, offset: int) -> None:
        """Record that the log has this marker at ``offset``, after all that was recorded before."""
        producer = self._in_epoch(marker.producer_id, marker.producer_epoch)
        producer.end_transaction(marker.coordinator_epoch, offset)

    def _in_epoch(self, producer_id: int, epoch: int) -> ProducerStateEntry:
        """Return the entry of the producer, which is active in this epoch."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = ProducerStateEntry(epoch, _ANY_SEQUENCE)
        else:
            producer.enter_epoch(epoch)
        return producer

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the batches that end at or beyond ``end_offset``.

        The producer can only send again what it sent before the oldest remembered batch, because it
        never has more in flight. That batch is therefore the next one, even if the batch before it
        is no longer remembered. Epochs stay, because the producer that began an epoch will continue
        in it.
        """
        for producer in self._by_id.values():
            producer.truncate(end_offset)

    def clear(self) -> None:
        """Forget all producers, because the log was emptied and may continue anywhere."""
        self._by_id.clear()

    def expire(self, now_ms: int, expiration_ms: int, busy: Container[int] = ()) -> None:
        """Forget the producers that have been idle since a check at least ``expiration_ms`` ago.

        ``now_ms`` is monotonic. Appends do not read the clock: a producer that has appended since
        the last check is active again. ``busy`` has the ids of producers with an open transaction,
        which stay.
        """
        expired = []
        for producer_id, producer in self._by_id.items():
            if producer.idle_since_ms == _ACTIVE or producer_id in busy:
                producer.begin_idle(now_ms)
            elif now_ms - producer.idle_since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self._by_id[producer_id]

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the entry of the producer, or None if it is not known. The caller must not change
        it."""
        return self._by_id.get(producer_id)

    def items(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        """Yield every known producer, by id. The caller must not change the entries."""
        return iter(self._by_id.items())

    def remembered_offsets(self) -> frozenset[int]:
        """Return the last offsets of batches that a producer may send again, and the offsets of
        the markers that determine the epochs of producers and coordinators. A cleaning must keep
        these."""
        batches = {
            producer.recent[place + 1]
            for producer in self._by_id.values()
            for place in range(0, len(producer.recent), _FIELDS)
        }
        markers = {producer.marker_offset for producer in self._by_id.values()}
        return frozenset(batches | markers) - {_NO_OFFSET}

    def pack_before(self, offset: int) -> bytes:
        """Return the state from batches that end below ``offset``, for ``unpack``. It is empty if
        there is none."""
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
    def unpack(cls, where: str, packed: bytes) -> "ProducerStateManager":
        """Return the state that ``pack_before`` packed."""
        if not packed:
            return cls(where)
        older = msgspec.msgpack.decode(packed, type=list[_Packed])
        return cls(
            where,
            (
                (
                    one.producer_id,
                    ProducerStateEntry(
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

    def _check(self, producer: ProducerStateEntry, header: BatchHeader) -> DuplicateBatch | None:
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
            original = None if first == expected else _duplicate(producer.recent, header)
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


def precedes(sequence: int, other: int) -> bool:
    """Say whether ``sequence`` is before ``other``. Sequences begin again at 0 after the last."""
    return 0 < (other - sequence) & _LAST_SEQUENCE <= _LAST_SEQUENCE // 2


def _fields_below(recent: tuple[int, ...], offset: int) -> int:
    """Return how many fields of ``recent`` are about batches that end below ``offset``."""
    kept = len(recent)
    while kept and recent[kept - 2] >= offset:
        kept -= _FIELDS
    return kept


def _duplicate(recent: tuple[int, ...], header: BatchHeader) -> DuplicateBatch | None:
    delta = header.last_offset_delta
    sequence = _last_sequence(header)
    for place in range(len(recent) - _FIELDS, -1, -_FIELDS):
        if recent[place] == sequence and recent[place + 2] == delta:
            last_offset = recent[place + 1]
            return DuplicateBatch(last_offset - delta, last_offset)
    return None


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return _ANY_SEQUENCE
    return (header.base_sequence + header.last_offset_delta) & _LAST_SEQUENCE
