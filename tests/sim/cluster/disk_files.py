"""Segments and the table of a simulated log folder: LMDB's part, without LMDB."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy as shallow_copy
from pathlib import Path
from types import MappingProxyType

import msgspec

from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.checkpoints.folder_history import FolderHistory
from quorate.broker.log.checkpoints.partition_row import PartitionRow, Truncation
from quorate.broker.log.checkpoints.table_rows import StoreRun, TruncationRule
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment_contents import (
    FooterPlace,
    SegmentContents,
    StoredBatch,
    StoredEpoch,
)
from quorate.common.types import TopicId

OnWrite = Callable[[], None]
"""A function that is called before every write, which does not happen if it raises."""


def _stored_batch(number: int, base_offset: int, data: bytes) -> StoredBatch:
    header = read_header(data)
    marker = decode_marker(header, data) if header.is_control else None
    return StoredBatch(number, base_offset, len(data), header, marker=marker)


class SimulatedSegment:
    """The surface of ``quorate.broker.log.segments.segment.Segment``."""

    def __init__(
        self, segment_id: int, on_write: OnWrite, on_unlink: Callable[[int], None]
    ) -> None:
        self.id = segment_id
        self.path = Path(f"segment-{segment_id}")
        self.live_batches = self.live_bytes = 0
        self.used_bytes = self.stored_bytes = self.commit = 0
        self.written_at_ms = 0
        self.is_sealed = self.is_unlinked = self.is_volatile = False
        self._write = on_write
        self._on_unlink = on_unlink
        self._batches: dict[int, dict[int, bytes]] = {}
        self._epochs: dict[int, dict[int, int]] = {}
        self._recorded_epochs: dict[int, int] = {}

    @property
    def may_be_written(self) -> bool:
        return not self.is_sealed

    @property
    def is_empty(self) -> bool:
        return not any(self._batches.values()) and not any(self._epochs.values())

    @property
    def contents(self) -> SegmentContents:
        batches = [
            _stored_batch(number, base_offset, data)
            for number, held in sorted(self._batches.items())
            for base_offset, data in sorted(held.items())
        ]
        epochs = [
            StoredEpoch(number, epoch, start)
            for number, starts in sorted(self._epochs.items())
            for epoch, start in sorted(starts.items())
        ]
        return SegmentContents.of(self.id, self.written_at_ms, batches, epochs)

    def hold(self, count: int, size: int) -> None:
        self.live_batches += count
        self.live_bytes += size

    def release(self, count: int, size: int) -> None:
        self.live_batches -= count
        self.live_bytes -= size

    def forget_contents(self) -> None:
        """They are computed."""

    def begin_writing(self, flush: str, *_: object) -> None:
        self.is_volatile = flush == "os"
        for epoch in self.contents.epochs:
            self._recorded_epochs[epoch.number] = epoch.leader_epoch

    def seal(self) -> FooterPlace:
        self.is_sealed = True
        return FooterPlace(0, 0, 0)

    def append(self, batches: Sequence[PendingBatch]) -> None:
        self._write()
        for batch in batches:
            number = batch.number
            if self._recorded_epochs.get(number) != batch.leader_epoch:
                self._recorded_epochs[number] = batch.leader_epoch
                starts = self._epochs.setdefault(number, {})
                starts[batch.leader_epoch] = batch.epoch_start_offset
            self._batches.setdefault(number, {})[batch.base_offset] = bytes(batch.records)
            self.used_bytes += batch.size
            self.stored_bytes += batch.size

    def delete_from(self, truncations: Sequence[tuple[int, int]]) -> None:
        self._write()
        for number, offset in truncations:
            self._recorded_epochs.pop(number, None)
            held = self._batches.get(number, {})
            for base_offset in [base for base in held if base >= offset]:
                del held[base_offset]
            starts = self._epochs.get(number, {})
            for epoch in [epoch for epoch, start in starts.items() if start >= offset]:
                del starts[epoch]

    def read(
        self, number: int, wanted: Sequence[tuple[int, int]], *, wait: bool = True
    ) -> list[bytes]:
        return [self._batches[number][base_offset] for base_offset, _ in wanted]

    def copied(self) -> "SimulatedSegment":
        """Return a copy as it is now, for a copy of the folder."""
        copy = shallow_copy(self)
        copy._batches = {number: dict(held) for number, held in self._batches.items()}
        copy._epochs = {number: dict(starts) for number, starts in self._epochs.items()}
        copy._recorded_epochs = dict(self._recorded_epochs)
        return copy

    def lose(self, number: int, from_offset: int) -> None:
        """The batches of one partition from there on are gone, and nothing says so."""
        held = self._batches.get(number, {})
        for base_offset in [base for base in held if base >= from_offset]:
            del held[base_offset]

    def reopened(self) -> "SimulatedSegment":
        """Return this segment as another process finds it."""
        self.live_batches = self.live_bytes = 0
        self._recorded_epochs = {}
        return self

    def sync(self) -> None:
        """The table says what is durable."""

    def close(self) -> None:
        """Its contents stay."""

    def unlink(self) -> None:
        self.is_unlinked = True
        self._on_unlink(self.id)


class SimulatedTable:
    """The surface of ``checkpoints.store_table.StoreTable``; every call is a synced transaction."""

    def __init__(self, on_write: OnWrite) -> None:
        self._write = on_write
        self._rows: dict[int, PartitionRow] = {}
        self._next_number = 0
        self._truncation_rules: dict[int, list[TruncationRule]] = {}
        self._producers: dict[int, bytes] = {}
        self._segments: dict[int, bool] = {}
        self._last_segment_id = 0
        self._high_watermarks: dict[int, int] = {}
        self._cleaned_offsets: dict[int, int] = {}
        self._run: StoreRun | None = None
        self._loss = False
        self._mark = 0
        self._history = FolderHistory()

    def copied(self) -> "SimulatedTable":
        """Return a copy as it is now, for a copy of the folder."""
        copy = shallow_copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(copy, name, dict(value))
        rules = self._truncation_rules
        copy._truncation_rules = {number: list(found) for number, found in rules.items()}
        return copy

    def lose_row(self, number: int) -> None:
        """The row of a partition is gone, and with it all that is known of its log."""
        del self._rows[number]

    def mistake_row(self, number: int, topic_id: TopicId) -> None:
        """The row of a partition bears another topic id."""
        self._rows[number] = msgspec.structs.replace(self._rows[number], topic_id=topic_id)

    def partitions(self) -> list[PartitionRow]:
        return [row for _, row in sorted(self._rows.items())]

    def next_number(self) -> int:
        return self._next_number

    def add_partitions(self, rows: Sequence[PartitionRow]) -> None:
        self._write()
        self._rows.update((row.number, row) for row in rows)
        self._next_number = max(row.number for row in rows) + 1

    def remove_partitions(self, numbers: Iterable[int]) -> None:
        self._write()
        for number in numbers:
            self._rows.pop(number, None)
            self._truncation_rules.pop(number, None)
            self._producers.pop(number, None)

    def truncation_rules(self) -> dict[int, list[TruncationRule]]:
        return {
            number: list(truncation_rules)
            for number, truncation_rules in self._truncation_rules.items()
            if truncation_rules
        }

    def record_truncations(self, truncations: Sequence[Truncation], sealed_segment_id: int) -> None:
        self._write()
        for truncation in truncations:
            number = truncation.number
            if truncation.lowest_segment_id <= sealed_segment_id:
                insort(
                    self._truncation_rules.setdefault(number, []),
                    TruncationRule(sealed_segment_id, truncation.offset),
                )
            if truncation.log_start_offset is not None and number in self._rows:
                self._rows[number] = msgspec.structs.replace(
                    self._rows[number], log_start_offset=truncation.log_start_offset
                )
                self._producers[number] = truncation.producers

    def producers(self) -> dict[int, bytes]:
        return dict(self._producers)

    def drop_truncation_rules_before(self, oldest_segment_id: int) -> None:
        for number, truncation_rules in self._truncation_rules.items():
            self._truncation_rules[number] = [
                v for v in truncation_rules if v.through_segment_id >= oldest_segment_id
            ]

    def segments(self) -> dict[int, bool]:
        return dict(sorted(self._segments.items()))

    def last_segment_id(self) -> int:
        return self._last_segment_id

    def record_segments(self, durable_by_id: Mapping[int, bool]) -> None:
        self._write()
        self._segments.update(durable_by_id)
        self._last_segment_id = max(self._last_segment_id, *durable_by_id)

    def record_footer(self, segment_id: int, _place: FooterPlace) -> None:
        self._write()
        if segment_id in self._segments:
            self._segments[segment_id] = True

    def forget_segments(self, segment_ids: Iterable[int]) -> None:
        for segment_id in segment_ids:
            self._segments.pop(segment_id, None)

    def high_watermarks(self) -> dict[int, int]:
        return dict(self._high_watermarks)

    def write_high_watermarks(
        self,
        offsets: Mapping[int, int],
        _commits: Mapping[int, int] = MappingProxyType({}),
        least_mark: int = 0,
    ) -> int:
        self._high_watermarks = dict(offsets)
        self._mark = max(self._mark + 1, least_mark)
        return self._mark

    def mark(self) -> int:
        return self._mark

    def history(self) -> FolderHistory:
        return self._history

    def change_history(self, change: Callable[[FolderHistory], FolderHistory]) -> FolderHistory:
        self._history = change(self._history)
        return self._history

    def cleaned_offsets(self) -> dict[int, int]:
        return dict(self._cleaned_offsets)

    def write_cleaned_offsets(self, offsets: Mapping[int, int]) -> None:
        self._cleaned_offsets = dict(offsets)

    def record_run(self, run: StoreRun) -> None:
        self._run = run

    def last_run(self) -> StoreRun | None:
        return self._run

    def loss_is_unhandled(self) -> bool:
        return self._loss

    def record_loss(self, *, unhandled: bool) -> None:
        self._loss = unhandled

    def close(self) -> None:
        """Its contents stay."""
