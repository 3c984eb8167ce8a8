"""What a segment holds, in columns: where each batch lies, and what its header says about it.

Sorted by partition number and base offset, so one partition's batches are a stretch of every
column. Packed and followed by its CRC-32C, this is the *footer* of a sealed segment: one read
instead of one per batch when the store opens. Numbers are in the byte order of the machine, as
LMDB's own are.

    footer   magic u32 | format u32 | segment id u64 | written at i64 ms | batches, epochs,
             scattered chunks u32 | columns | markers, if there are any: how many u32, columns
             | crc u32 of all before

A footer with markers is of format 2, any other of format 1, which older releases read, too.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import repeat
from operator import add, eq, sub
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batch_places import CHUNK_STEP, BatchPlaces, chunk_count
from broker.log.control_batches import EndMarker
from broker.log.record_batch import CONTROL, TRANSACTIONAL, BatchHeader

FORMAT: Final = 1
_FORMAT_WITH_MARKERS: Final = 2

_MAGIC: Final = 0x51464F4F
_HEAD: Final = struct.Struct("=IIQqIII")
_CRC: Final = struct.Struct("=I")
_COUNT: Final = struct.Struct("=I")


def footer_crc(footer: bytes) -> int:
    """The checksum that a footer ends with."""
    return int(_CRC.unpack(footer[-_CRC.size :])[0])


class FooterDamaged(Exception):
    """It is not the footer that was written."""


class FooterPlace(NamedTuple):
    """Where in its file a segment's footer is, and its checksum: of this footer, no older one."""

    position: int
    size: int
    crc: int


class StoredBatch(NamedTuple):
    """A batch in a segment. ``chunks``: where in the file each piece of it begins."""

    number: int
    base_offset: int
    size: int
    header: BatchHeader
    chunks: Sequence[int] = (0,)
    marker: EndMarker | None = None
    """What a control batch says, if it ends a transaction."""


class StoredEpoch(NamedTuple):
    """Where an epoch begins in a partition."""

    number: int
    leader_epoch: int
    start_offset: int


class Sequenced(NamedTuple):
    """A batch as its producer numbered it."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset_delta: int
    attributes: int


class SegmentContents(BatchPlaces):
    """All batches of a segment. ``written_at_ms``: when the newest was, by the wall clock."""

    def __init__(self, segment_id: int, written_at_ms: int) -> None:
        super().__init__()
        self.segment_id = segment_id
        self.written_at_ms = written_at_ms
        self.last_offset_deltas = array("i")
        self.max_timestamps = array("q")
        self.leader_epochs = array("i")
        self.producer_ids = array("q")
        self.producer_epochs = array("h")
        self.base_sequences = array("i")
        self.attributes = array("h")
        self.record_counts = array("i")
        self.epochs: list[StoredEpoch] = []
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
        """From ``batches`` sorted by partition number and base offset."""
        contents = cls(segment_id, written_at_ms)
        for batch in batches:
            contents._add(batch)
        contents.epochs = list(epochs)
        return contents

    @cached_property
    def has_producers(self) -> bool:
        """Whether a batch says whose it is."""
        return max(self.producer_ids, default=-1) >= 0

    @cached_property
    def has_transactions(self) -> bool:
        """Whether a batch is part of a transaction, or ends one."""
        return any(each & (TRANSACTIONAL | CONTROL) for each in set(self.attributes))

    def marker(self, place: int) -> EndMarker | None:
        """What the control batch at ``place`` says, if it ends a transaction."""
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
        """What of it is needed to read batches."""
        places = BatchPlaces()
        places.numbers = self.numbers
        places.base_offsets = self.base_offsets
        places.sizes = self.sizes
        places.positions = self.positions
        places.scattered = self.scattered
        return places

    def last_offset(self, place: int) -> int:
        """Of the batch at ``place`` in the columns."""
        return self.base_offsets[place] + self.last_offset_deltas[place]

    def is_contiguous(self, first: int, end: int) -> bool:
        """Whether each batch of a stretch of one partition begins where the one before it ends."""
        bases = self.base_offsets
        steps = map(sub, bases[first + 1 : end], bases[first:end])
        return all(map(eq, steps, map(add, self.last_offset_deltas[first:end], repeat(1))))

    def sequence(self, place: int) -> Sequenced:
        """What the batch at ``place`` says of its producer."""
        return Sequenced(
            self.producer_ids[place],
            self.producer_epochs[place],
            self.base_sequences[place],
            self.last_offset_deltas[place],
            self.attributes[place],
        )

    def pack(self) -> bytes:
        """The footer."""
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
        """What ``pack`` gave; ``crc`` is the one it had.

        Raises:
            FooterDamaged: it is not that, or of another segment or format.
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
        """Read the markers; returns what follows them."""
        if len(packed) < _COUNT.size:
            raise FooterDamaged(f"{len(packed)} bytes are left where its markers belong")
        (count,) = _COUNT.unpack_from(packed)
        rest = packed[_COUNT.size :]
        for column in self._marker_columns():
            rest = _fill(column, rest, count)
        return rest

    def _epoch_columns(self) -> tuple["array[int]", "array[int]", "array[int]"]:
        """Partition numbers, epochs and start offsets."""
        numbers, epochs, starts = array("I"), array("I"), array("Q")
        for number, epoch, start_offset in self.epochs:
            numbers.append(number)
            epochs.append(epoch)
            starts.append(start_offset)
        return numbers, epochs, starts

    def _add(self, batch: StoredBatch) -> None:
        header, chunks = batch.header, batch.chunks
        place, position = len(self), chunks[0]
        if any(at != position + chunk * CHUNK_STEP for chunk, at in enumerate(chunks)):
            self.scattered[place] = tuple(chunks)
        self.numbers.append(batch.number)
        self.base_offsets.append(batch.base_offset)
        self.sizes.append(batch.size)
        self.positions.append(position)
        self.last_offset_deltas.append(header.last_offset_delta)
        self.max_timestamps.append(header.max_timestamp)
        self.leader_epochs.append(header.leader_epoch)
        self.producer_ids.append(header.producer_id)
        self.producer_epochs.append(header.producer_epoch)
        self.base_sequences.append(header.base_sequence)
        self.attributes.append(header.attributes)
        self.record_counts.append(header.record_count)
        if batch.marker is not None:
            self._marker_places.append(place)
            self._marker_kinds.append(batch.marker.committed)
            self._coordinator_epochs.append(batch.marker.coordinator_epoch)


def _fill(column: "array[int]", packed: memoryview, count: int) -> memoryview:
    """Read ``count`` numbers; returns what follows them."""
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
