"""Assembles the log of one partition from the segments that hold its batches.

A log is a sequence of batches whose offset ranges follow one another. Several segments may hold a
batch of the same base offset: it was copied forward out of an old segment, or replaced by a
compacted batch that may span its neighbours as well. The version in the newest segment counts, and
older batches inside its range do not. A copied batch disappears from the old segment only with the
whole file, so a crash in between neither loses nor duplicates anything.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.table_rows import TruncationRule
from quorate.broker.log.segments.batch_index import BatchIndex, Forgotten
from quorate.broker.log.segments.batch_places import PartitionRun
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import SegmentContents, StoredEpoch
from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import (
    NO_OFFSET,
    PartitionTransactions,
    record_batch_state,
)
from quorate.broker.log.stored.log_state import LogState
from quorate.common.types import TopicPartition


class _Piece(NamedTuple):
    """The part of the log that one segment holds, as a range of places in its columns."""

    segment: Segment
    contents: SegmentContents
    first: int
    end: int
    is_recent: bool


class RecoveredLog:
    """One partition as it was found. ``end_offset`` and ``has_gap`` are valid after
    ``assemble``."""

    def __init__(
        self,
        row: PartitionRow,
        truncation_rules: Iterable[TruncationRule],
        producers: bytes,
        high_watermark: int = NO_OFFSET,
    ) -> None:
        """``producers`` is the packed producer state at the start of the log. ``high_watermark`` is
        the last known one; no transaction marker below it can be truncated."""
        self.row = row
        self._high_watermark = high_watermark
        self.index = BatchIndex()
        where = str(TopicPartition(row.topic, row.partition))
        self.producers = ProducerStateManager.unpack(where, producers)
        self.transactions = PartitionTransactions(where)
        self.end_offset = row.log_start_offset
        self.has_gap = False
        self.has_versions = False
        """Whether a segment may hold a batch that another one has a newer version of."""
        self._truncation_rules = list(truncation_rules)
        self._pieces: list[_Piece] = []
        self._superseded: dict[tuple[int, Segment], tuple[int, int]] = {}
        """Batches and bytes by (id of the newer segment, older segment) of two versions."""
        self._epochs: dict[int, int] = {}

    def add(
        self, run: PartitionRun, contents: SegmentContents, segment: Segment, *, is_recent: bool
    ) -> None:
        """Add the batches that a segment holds. Segments must be added oldest first.

        ``is_recent`` means that the producers may send the batches again.
        """
        self._pieces.append(_Piece(segment, contents, run.first, run.end, is_recent))

    def add_epoch(self, epoch: StoredEpoch, segment: Segment) -> None:
        """Add the start of an epoch that a segment holds. Segments must be added oldest first."""
        if self._exists(segment.id, epoch.start_offset):
            self._epochs[epoch.leader_epoch] = epoch.start_offset

    def assemble(self) -> None:
        """Assemble the log, up to the first gap."""
        in_order = self._in_order()
        self.has_versions = not in_order and bool(self._pieces)
        for piece in in_order or self._merged():
            self._take(piece)
        self._pieces.clear()

    def superseded_by(self, segment_id: int) -> Forgotten:
        """Return the segments that hold older versions of batches in this segment, with the numbers
        of batches and bytes."""
        return [
            (older, *held)
            for (newer_id, older), held in self._superseded.items()
            if newer_id == segment_id
        ]

    def leader_epochs(self) -> LeaderEpochCache:
        history = LeaderEpochCache(self._epochs.items())
        history.truncate_from_end(self.end_offset)
        history.truncate_from_start(self.row.log_start_offset)
        return history

    def state(self, high_watermark: int, cleaned_offset: int) -> LogState:
        """Return the recovered state, with the offsets from the checkpoints."""
        return LogState(
            self.index,
            self.leader_epochs(),
            self.producers,
            self.transactions,
            self.end_offset,
            high_watermark,
            cleaned_offset,
            self.has_versions,
        )

    def _exists(self, segment_id: int, offset: int) -> bool:
        """Return whether no truncation rule removes what that segment holds from ``offset`` on."""
        return not self._truncation_rules or all(
            segment_id > rule.through_segment_id or offset < rule.offset
            for rule in self._truncation_rules
        )

    def _in_order(self) -> list[_Piece]:
        """Return the pieces unchanged if each begins where the last one ended, else an empty
        list."""
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
        """Yield the batches one by one, by base offset. Of several at the same offset, the one in
        the newest segment counts."""
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
        segment.hold(end - first, sum(sizes))
        if contents.has_transactions:
            self._record_transactions(piece)
        elif is_recent and contents.has_producers:
            for place in range(first, end):
                self.producers.record(contents.sequence(place), contents.base_offsets[place])
        self.end_offset = contents.last_offset(end - 1) + 1

    def _record_transactions(self, piece: _Piece) -> None:
        """Record the transactions of the piece. An open transaction holds back readers of committed
        records, however old it is."""
        contents = piece.contents
        producers = self.producers if piece.is_recent else None
        for place in range(piece.first, piece.end):
            marker = contents.marker(place)
            base_offset, sequence = contents.base_offsets[place], contents.sequence(place)
            record_batch_state(producers, self.transactions, sequence, base_offset, marker)
            if marker is not None:
                self.transactions.settle(self._high_watermark)
