"""One partition's log put together from what the segments hold of it.

A log is a sequence of batches whose spans of offsets follow one another. Several segments may hold
a batch of the same base offset: it was copied forward out of an old segment, or replaced by one
that lacks what compaction removed and may span its neighbours as well. The newest segment's version
counts, and what lies inside its span in older segments does not. What was copied is gone from the
old segment only with its file, so a crash in between loses nothing and doubles nothing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.log.batch_index import BatchIndex
from broker.log.batch_places import Run
from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.producers import PartitionProducers
from broker.log.segment import Segment
from broker.log.segment_contents import SegmentContents, StoredEpoch
from broker.log.stored_log import Forgotten
from broker.log.table import Void
from broker.log.transactions import NO_OFFSET, PartitionTransactions, take_note
from broker.log.work import PartitionRow
from metadata_log.types import TopicPartition


class _Piece(NamedTuple):
    """What one segment holds of the log, by places in its columns."""

    segment: Segment
    contents: SegmentContents
    first: int
    end: int
    is_recent: bool


class RecoveredLog:
    """One partition as found; ``end_offset`` and ``has_gap`` are known after ``assemble``."""

    def __init__(
        self,
        row: PartitionRow,
        voids: Iterable[Void],
        producers: bytes,
        high_watermark: int = NO_OFFSET,
    ) -> None:
        """``producers``: as packed at the start of the log; ``high_watermark``: as it was known,
        below which no transaction's end can be cut off."""
        self.row = row
        self._high_watermark = high_watermark
        self.index = BatchIndex()
        where = str(TopicPartition(row.topic, row.partition))
        self.producers = PartitionProducers.unpack(where, producers)
        self.transactions = PartitionTransactions(where)
        self.end_offset = row.log_start_offset
        self.has_gap = False
        self.has_versions = False
        """Whether a segment may hold a batch that another one has a newer version of."""
        self._voids = list(voids)
        self._pieces: list[_Piece] = []
        self._superseded: dict[tuple[int, Segment], tuple[int, int]] = {}
        """(id of the segment with the newer version, that with the older) → batches and bytes."""
        self._epochs: dict[int, int] = {}

    def add(
        self, run: Run, contents: SegmentContents, segment: Segment, *, is_recent: bool
    ) -> None:
        """A segment holds these batches; segments come oldest first.

        ``is_recent``: their producers may send them again.
        """
        self._pieces.append(_Piece(segment, contents, run.first, run.end, is_recent))

    def add_epoch(self, epoch: StoredEpoch, segment: Segment) -> None:
        """A segment says where an epoch began; segments come oldest first."""
        if self._exists(segment.id, epoch.start_offset):
            self._epochs[epoch.leader_epoch] = epoch.start_offset

    def assemble(self) -> None:
        """Put the log together: as far as it goes on without a gap."""
        in_order = self._in_order()
        self.has_versions = not in_order and bool(self._pieces)
        for piece in in_order or self._merged():
            self._take(piece)
        self._pieces.clear()

    def superseded_by(self, segment_id: int) -> Forgotten:
        """Which segments hold batches that this one holds a newer version of."""
        return [
            (older, *held)
            for (newer_id, older), held in self._superseded.items()
            if newer_id == segment_id
        ]

    def leader_epochs(self) -> LeaderEpochHistory:
        history = LeaderEpochHistory(self._epochs.items())
        history.truncate_from_end(self.end_offset)
        history.truncate_from_start(self.row.log_start_offset)
        return history

    def _exists(self, segment_id: int, offset: int) -> bool:
        """Whether what that segment holds from ``offset`` on was not voided by a truncation."""
        return not self._voids or all(
            segment_id > void.through_segment_id or offset < void.offset for void in self._voids
        )

    def _in_order(self) -> list[_Piece]:
        """The pieces as they are, if each goes on where the last one ended; else none of them."""
        kept: list[_Piece] = []
        start = end_offset = self.row.log_start_offset
        for piece in self._pieces:
            contents = piece.contents
            first = bisect_right(contents.base_offsets, start, piece.first, piece.end) - 1
            if first < piece.first or contents.last_offset(first) < start:
                first += 1
            if first == piece.end:
                continue
            base_offset = contents.base_offsets[first]
            continues = base_offset == end_offset or (not kept and base_offset < start)
            last = piece.end - 1
            is_whole = first == last or contents.is_contiguous(first, piece.end)
            exists = self._exists(piece.segment.id, contents.base_offsets[last])
            if not (continues and is_whole and exists):
                return []
            kept.append(piece if first == piece.first else piece._replace(first=first))
            end_offset = contents.last_offset(last) + 1
        return kept

    def _merged(self) -> Iterator[_Piece]:
        """Batch by batch, by base offset; of those at the same one the newest segment's."""
        versions = [
            (piece.contents.base_offsets[place], -piece.segment.id, place, piece)
            for piece in self._pieces
            for place in range(piece.first, piece.end)
        ]
        versions.sort(key=lambda version: version[:2])
        end_offset = start = self.row.log_start_offset
        covering_id = 0
        for base_offset, minus_id, place, piece in versions:
            last_offset = piece.contents.last_offset(place)
            if last_offset < start or not self._exists(-minus_id, base_offset):
                continue
            if covering_id and base_offset < end_offset and -minus_id <= covering_id:
                self._note_superseded(covering_id, piece, place)
                continue
            if base_offset != end_offset and (covering_id or base_offset > end_offset):
                self.has_gap = True
                return
            yield piece._replace(first=place, end=place + 1)
            covering_id, end_offset = -minus_id, last_offset + 1

    def _note_superseded(self, newer_id: int, piece: _Piece, place: int) -> None:
        count, size = self._superseded.get((newer_id, piece.segment), (0, 0))
        held = count + 1, size + piece.contents.sizes[place]
        self._superseded[newer_id, piece.segment] = held

    def _take(self, piece: _Piece) -> None:
        segment, contents, first, end, is_recent = piece
        bases, sizes = contents.base_offsets[first:end], contents.sizes[first:end]
        self.index.extend(bases, sizes, contents.max_timestamps[first:end])
        self.index.place(bases[0], segment)
        segment.live_batches += end - first
        segment.live_bytes += sum(sizes)
        if contents.has_transactions:
            self._take_note_of_transactions(piece)
        elif is_recent and contents.has_producers:
            for place in range(first, end):
                self.producers.record(contents.sequence(place), contents.base_offsets[place])
        self.end_offset = contents.last_offset(end - 1) + 1

    def _take_note_of_transactions(self, piece: _Piece) -> None:
        """A transaction that is not over keeps readers waiting, however old it is."""
        contents = piece.contents
        producers = self.producers if piece.is_recent else None
        for place in range(piece.first, piece.end):
            marker = contents.marker(place)
            base_offset, sequence = contents.base_offsets[place], contents.sequence(place)
            take_note(producers, self.transactions, sequence, base_offset, marker)
            if marker is not None:
                self.transactions.settle(self._high_watermark)
