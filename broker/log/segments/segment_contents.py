"""The contents of a segment in columns: the position of each batch, and the fields of its header.

The columns are sorted by partition number and base offset, so the batches of one partition are a
range of every column. The packed columns, followed by their CRC-32C, are the *footer* of a sealed
segment. When the store opens it reads one footer instead of every batch. Numbers are in the byte
order of the machine, as LMDB's own are.

    footer   magic u32 | format u32 | segment id u64 | written at i64 ms | batches, epochs,
             scattered chunks u32 | columns | markers, if there are any: how many u32, columns
             | crc u32 of all before

A footer with markers is of format 2. Any other footer is of format 1, which older releases can
read.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice, repeat
from operator import add, eq, sub
from typing import Final, NamedTuple

from crc32c import crc32c

from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import CONTROL, TRANSACTIONAL, BatchHeader
from quorate.broker.log.segments.batch_places import CHUNK_STEP, BatchPlaces, chunk_count

FORMAT: Final = 1
_FORMAT_WITH_MARKERS: Final = 2

_ADDED_AT_ONCE: Final = 1_000
"""Each step holds Python's lock for so many batches."""
_MAGIC: Final = 0x51464F4F
_HEAD: Final = struct.Struct("=IIQqIII")
_CRC: Final = struct.Struct("=I")
_COUNT: Final = struct.Struct("=I")


def footer_crc(footer: bytes) -> int:
    """Return the checksum that a footer ends with."""
    return int(_CRC.unpack(footer[-_CRC.size :])[0])


class FooterDamaged(Exception):
    """Raised when the footer is not what was written."""


class FooterPlace(NamedTuple):
    """The place of a segment's footer in its file, and the checksum of this footer."""

    position: int
    size: int
    crc: int
    commit: int = 0
    """The commit of LMDB that the footer is of, or 0 if an earlier release wrote it."""


class StoredBatch(NamedTuple):
    """A batch in a segment. ``chunks`` are the positions of its pieces in the file."""

    number: int
    base_offset: int
    size: int
    header: BatchHeader
    chunks: Sequence[int] = (0,)
    marker: EndMarker | None = None
    """The marker in a control batch that ends a transaction, else None."""


class StoredEpoch(NamedTuple):
    """The start of a leader epoch in a partition."""

    number: int
    leader_epoch: int
    start_offset: int


class ProducerSequence(NamedTuple):
    """The fields of a batch that its producer set: ids, epoch and sequence."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset_delta: int
    attributes: int


class SegmentContents(BatchPlaces):
    """All batches of a segment. ``written_at_ms`` is the time of the last write by the wall
    clock."""

    def __init__(self, segment_id: int, written_at_ms: int) -> None:
        super().__init__()
        self.segment_id = segment_id
        self.written_at_ms = written_at_ms
        self.last_offset_deltas = array("i")
        self.max_timestamps = array("q")
        self.producer_ids = array("q")
        self.producer_epochs = array("h")
        self.base_sequences = array("i")
        self.attributes = array("h")
        self.record_counts = array("i")
        self.epochs: list[StoredEpoch] = []
        self.has_checks = True
        """Whether the segment is of a format in which every batch has a check of its header."""
        self._marker_places = array("I")
        self._marker_kinds = array("b")
        self._coordinator_epochs = array("i")

    @classmethod
    def of(
        cls,
        segment_id: int,
        written_at_ms: int,
        batches: Iterable[StoredBatch],
        epochs: Iterable[StoredEpoch],
    ) -> "SegmentContents":
        """Return the contents with ``batches``, which are sorted by partition number and base
        offset."""
        contents = cls(segment_id, written_at_ms)
        rest = iter(batches)
        while found := [*islice(rest, _ADDED_AT_ONCE)]:
            contents.extend(
                [batch.number for batch in found],
                [batch.size for batch in found],
                [batch.chunks for batch in found],
                [batch.header for batch in found],
                {at: batch.marker for at, batch in enumerate(found) if batch.marker is not None},
            )
        contents.epochs = list(epochs)
        return contents

    def extend(
        self,
        numbers: Sequence[int],
        sizes: Sequence[int],
        chunks: Sequence[Sequence[int]],
        headers: Sequence[BatchHeader],
        markers: Mapping[int, EndMarker],
    ) -> None:
        """Add batches behind those that are there, given as columns. ``chunks`` has the positions
        of the pieces of each. ``markers`` are those in control batches, by their place in the
        columns."""
        if not headers:
            return
        first = len(self)
        (
            base_offsets,
            _,
            leader_epochs,
            _,
            _,
            attributes,
            last_offset_deltas,
            _,
            max_timestamps,
            producer_ids,
            producer_epochs,
            base_sequences,
            record_counts,
        ) = zip(*headers, strict=True)
        self.numbers.extend(numbers)
        self.base_offsets.extend(base_offsets)
        self.sizes.extend(sizes)
        self.positions.extend([pieces[0] for pieces in chunks])
        self.last_offset_deltas.extend(last_offset_deltas)
        self.max_timestamps.extend(max_timestamps)
        self.leader_epochs.extend(leader_epochs)
        self.producer_ids.extend(producer_ids)
        self.producer_epochs.extend(producer_epochs)
        self.base_sequences.extend(base_sequences)
        self.attributes.extend(attributes)
        self.record_counts.extend(record_counts)
        for place, pieces in enumerate(chunks):
            if len(pieces) > 1 and not _are_side_by_side(pieces):
                self.scattered[first + place] = tuple(pieces)
        for place, marker in markers.items():
            self._marker_places.append(first + place)
            self._marker_kinds.append(marker.committed)
            self._coordinator_epochs.append(marker.coordinator_epoch)

    @cached_property
    def has_producers(self) -> bool:
        """Whether any batch has a producer id."""
        return max(self.producer_ids, default=-1) >= 0

    @cached_property
    def has_transactions(self) -> bool:
        """Whether any batch is part of a transaction or ends one."""
        return any(each & (TRANSACTIONAL | CONTROL) for each in set(self.attributes))

    def marker(self, place: int) -> EndMarker | None:
        """Return the marker in the control batch at ``place``, or None if it does not end a
        transaction."""
        found = bisect_left(self._marker_places, place)
        if found == len(self._marker_places) or self._marker_places[found] != place:
            return None
        return EndMarker(
            self.producer_ids[place],
            self.producer_epochs[place],
            bool(self._marker_kinds[found]),
            self._coordinator_epochs[found],
        )

    def places(self) -> BatchPlaces:
        """Return the part of the contents that is needed to read batches."""
        places = BatchPlaces()
        places.numbers = self.numbers
        places.base_offsets = self.base_offsets
        places.sizes = self.sizes
        places.positions = self.positions
        places.leader_epochs = self.leader_epochs
        places.scattered = self.scattered
        return places

    def last_offset(self, place: int) -> int:
        """Return the last offset of the batch at ``place``."""
        return self.base_offsets[place] + self.last_offset_deltas[place]

    def is_contiguous(self, first: int, end: int) -> bool:
        """Return whether each batch of this range, of one partition, begins where the one before
        ends."""
        bases = self.base_offsets
        steps = map(sub, bases[first + 1 : end], bases[first:end])
        return all(map(eq, steps, map(add, self.last_offset_deltas[first:end], repeat(1))))

    def sequence(self, place: int) -> ProducerSequence:
        """Return the producer's fields of the batch at ``place``."""
        return ProducerSequence(
            self.producer_ids[place],
            self.producer_epochs[place],
            self.base_sequences[place],
            self.last_offset_deltas[place],
            self.attributes[place],
        )

    def pack(self) -> bytes:
        """Return the footer as bytes."""
        scattered = array("Q")
        for place, chunks in self.scattered.items():
            scattered.append(place)
            scattered.extend(chunks)
        pieces = [
            _HEAD.pack(
                _MAGIC,
                _FORMAT_WITH_MARKERS if self._marker_places else FORMAT,
                self.segment_id,
                self.written_at_ms,
                len(self),
                len(self.epochs),
                len(scattered),
            ),
            *(column.tobytes() for column in self._columns()),
            *(column.tobytes() for column in self._epoch_columns()),
            scattered.tobytes(),
        ]
        if self._marker_places:
            pieces.append(_COUNT.pack(len(self._marker_places)))
            pieces += [column.tobytes() for column in self._marker_columns()]
        packed = b"".join(pieces)
        return packed + _CRC.pack(crc32c(packed))

    @classmethod
    def unpack(cls, footer: bytes, segment_id: int, crc: int) -> "SegmentContents":
        """Return the contents in a footer made by ``pack``. ``crc`` is the checksum it must have.

        Raises:
            FooterDamaged: The bytes are no such footer, or the footer is of another segment or
                format.
        """
        if len(footer) < _HEAD.size + _CRC.size:
            raise FooterDamaged(f"{len(footer)} bytes of it are left")
        body = memoryview(footer)[: -_CRC.size]
        if (found := crc32c(body)) != footer_crc(footer) or found != crc:
            raise FooterDamaged(f"its checksum is {found:#010x}, expected is {crc:#010x}")
        magic, version, stored_id, written_at_ms, batches, epochs, scattered = _HEAD.unpack_from(
            body
        )
        known = (FORMAT, _FORMAT_WITH_MARKERS)
        if (magic, stored_id) != (_MAGIC, segment_id) or version not in known:
            raise FooterDamaged(
                f"it is of segment {stored_id}, format {version}; expected {segment_id}, "
                f"{FORMAT} or {_FORMAT_WITH_MARKERS}"
            )
        contents = cls(segment_id, written_at_ms)
        rest = body[_HEAD.size :]
        for column in contents._columns():
            rest = _fill(column, rest, batches)
        epoch_columns = contents._epoch_columns()
        for column in epoch_columns:
            rest = _fill(column, rest, epochs)
        contents.epochs = [StoredEpoch(*one) for one in zip(*epoch_columns, strict=True)]
        chunks = array("Q")
        rest = _fill(chunks, rest, scattered)
        contents.scattered = _unpacked_chunks(chunks, contents.sizes)
        if version == _FORMAT_WITH_MARKERS:
            rest = contents._fill_markers(rest)
        if rest:
            raise FooterDamaged(f"{len(rest)} bytes follow it")
        return contents

    def _columns(self) -> tuple["array[int]", ...]:
        return (
            self.numbers,
            self.base_offsets,
            self.sizes,
            self.positions,
            self.last_offset_deltas,
            self.max_timestamps,
            self.leader_epochs,
            self.producer_ids,
            self.producer_epochs,
            self.base_sequences,
            self.attributes,
            self.record_counts,
        )

    def _marker_columns(self) -> tuple["array[int]", ...]:
        return self._marker_places, self._marker_kinds, self._coordinator_epochs

    def _fill_markers(self, packed: memoryview) -> memoryview:
        """Read the markers. Return the bytes after them."""
        if len(packed) < _COUNT.size:
            raise FooterDamaged(f"{len(packed)} bytes are left where its markers belong")
        (count,) = _COUNT.unpack_from(packed)
        rest = packed[_COUNT.size :]
        for column in self._marker_columns():
            rest = _fill(column, rest, count)
        return rest

    def _epoch_columns(self) -> tuple["array[int]", "array[int]", "array[int]"]:
        """Return the columns of partition numbers, epochs and start offsets."""
        numbers, epochs, starts = array("I"), array("I"), array("Q")
        for number, epoch, start_offset in self.epochs:
            numbers.append(number)
            epochs.append(epoch)
            starts.append(start_offset)
        return numbers, epochs, starts


def _are_side_by_side(chunks: Sequence[int]) -> bool:
    return all(at == chunks[0] + number * CHUNK_STEP for number, at in enumerate(chunks))


def _fill(column: "array[int]", packed: memoryview, count: int) -> memoryview:
    """Read ``count`` numbers. Return the bytes after them."""
    size = count * column.itemsize
    if size > len(packed):
        raise FooterDamaged(f"{len(packed)} bytes are left where {size} belong")
    column.frombytes(packed[:size])
    return packed[size:]


def _unpacked_chunks(packed: "array[int]", sizes: "array[int]") -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    at = 0
    while at < len(packed):
        place = packed[at]
        end = at + 1 + chunk_count(sizes[place])
        found[place] = tuple(packed[at + 1 : end])
        at = end
    return found
