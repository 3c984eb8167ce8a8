"""A log store in memory whose flushes are verbs: the surface of ``broker.log`` that replicas use.

Batches are validated and given offsets by the real code; what a flush makes durable, and when a
producer hears of it, is up to the test.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead, LeaderEpochCache, LogAppendInfo, LogRead, Records
from quorate.broker.log.batches.admission import AppendOrigin, produced_batches
from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import Batch, iterate_batches, patched, read_header
from quorate.broker.log.batches.topic_timestamps import AS_SENT
from quorate.broker.log.segments.batch_index import BatchIndex
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import PartitionTransactions, record_batch_state
from quorate.broker.log.stored.retention import Retention, SegmentTimes, batches_to_delete
from quorate.broker.quota.room_turns import RoomTurns
from quorate.common.types import LeaderEpoch, TopicIdPartition
from quorate_proto.v1 import errors_pb2

DIRECTORY = Path("/memory")


class MemoryLog:
    """One partition's batches as (base offset, last offset, bytes)."""

    directory = DIRECTORY
    is_offline = False
    is_full = False

    def __init__(self, tip: TopicIdPartition, topic: str, assigned_at: int) -> None:
        self.reported: list[object] = []
        self.tip = tip
        self.topic = topic
        self.assigned_at = assigned_at
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.checkpointed_high_watermark = 0
        self.leader_epochs = LeaderEpochCache()
        self.producers = ProducerStateManager(topic)
        self.transactions = PartitionTransactions(topic)
        self.max_batch_bytes = 1 << 20
        self.needs_keys = False
        self.storing = AS_SENT
        self.until_loaded: asyncio.Event | None = None
        """Set by a test: what is read is on a disk, and loaded once this is set."""
        self.loads = 0
        self.batches: list[tuple[int, int, bytes]] = []

    @property
    def has_transactions(self) -> bool:
        return True

    def report_damage(self, damaged: object) -> None:
        """Tell the log's owner, as a stored log does."""
        self.reported.append(damaged)

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for _, _, data in self.batches)

    def stable_offset(self, high_watermark: int) -> int:
        return max(self.log_start_offset, self.transactions.stable_offset(high_watermark))

    def append_as_leader(
        self,
        records: Records | list[Batch],
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        base = self.log_end_offset
        batches = (
            records
            if isinstance(records, list)
            else produced_batches(records, self.max_batch_bytes, self.topic, origin)
        )
        (original, *others) = self.producers.find_duplicates(batches)
        if original is not None:
            assert not others, "one batch at a time is sent again in these tests"
            return LogAppendInfo(*original)
        self.transactions.check(batches)
        for header, data in batches:
            if header.is_control and (marker := decode_marker(header, data)) is not None:
                self.producers.check_marker(marker)
            first = self.log_end_offset
            last = first + header.last_offset_delta
            self._append(first, last, patched(data, first, leader_epoch), leader_epoch)
            self._take_note(Batch(header, data), first)
        return LogAppendInfo(base, self.log_end_offset - 1)

    def find_originals(self, records: Records, origin: AppendOrigin) -> LogAppendInfo | None:
        if origin is AppendOrigin.MARKERS:
            return None
        originals = self.producers.find_originals(iterate_batches(records, self.topic))
        return None if originals is None else LogAppendInfo(*originals)

    def append_as_follower(self, records: Records) -> LogAppendInfo:
        base = self.log_end_offset
        for header, data in list(iterate_batches(records, self.topic)):
            if header.base_offset != self.log_end_offset:
                raise KafkaError(errors_pb2.OFFSET_OUT_OF_RANGE, "does not continue the log")
            epoch = LeaderEpoch(header.leader_epoch)
            self._append(header.base_offset, header.last_offset, bytes(data), epoch)
            self._take_note(Batch(header, data), header.base_offset)
        return LogAppendInfo(base, self.log_end_offset - 1)

    def read(
        self, start_offset: int, max_bytes: int, up_to_offset: int, *, wait: bool = True
    ) -> LogRead:
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise KafkaError(errors_pb2.OFFSET_OUT_OF_RANGE, f"no offset {start_offset}")
        if self.until_loaded is not None and not wait:
            raise ColdRead(max_bytes, self._load)
        chunks: list[bytes] = []
        next_offset, size = start_offset, 0
        for _, last, data in self.batches:
            if last < start_offset:
                continue
            if last >= up_to_offset or (chunks and size + len(data) > max_bytes):
                break
            chunks.append(data)
            next_offset, size = last + 1, size + len(data)
        return LogRead(chunks, next_offset, size)

    async def _load(self) -> None:
        self.loads += 1
        assert self.until_loaded is not None
        await self.until_loaded.wait()

    def settle_transactions(self, high_watermark: int) -> None:
        self.transactions.settle(high_watermark)

    async def truncate_to(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each[1] < offset]
        self.log_end_offset = self.batches[-1][1] + 1 if self.batches else self.log_start_offset
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.transactions.truncate_from_end(self.log_end_offset)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches.clear()
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.leader_epochs.clear()
        self.transactions.clear()

    async def start_at(self, offset: int) -> None:
        if offset > self.flushed_offset:
            raise KafkaError(errors_pb2.OFFSET_OUT_OF_RANGE, f"not durable up to {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)
        self.batches = [each for each in self.batches if each[1] >= self.log_start_offset]
        self.leader_epochs.truncate_from_start(self.log_start_offset)

    def retained_from(
        self, committed_offset: int, retention: Retention, now_ms: int, times: SegmentTimes
    ) -> int:
        index = BatchIndex()
        for base, _, data in self.batches:
            index.append(base, len(data), read_header(data).max_timestamp)
            index.place(base, cast("Segment", SimpleNamespace(id=1)))
        limit = sum(last < committed_offset for _, last, _ in self.batches)
        gone = batches_to_delete(index, limit, retention, now_ms, times)
        return self.batches[gone - 1][1] + 1 if gone else self.log_start_offset

    def offset_for_timestamp(self, timestamp_ms: int, up_to_offset: int) -> tuple[int, int] | None:
        return (self.log_start_offset, timestamp_ms) if self.batches else None

    def _take_note(self, batch: Batch, base: int) -> None:
        marker = decode_marker(*batch) if batch.header.is_control else None
        record_batch_state(self.producers, self.transactions, batch.header, base, marker)

    def _append(self, base: int, last: int, data: bytes, epoch: LeaderEpoch) -> None:
        self.batches.append((base, last, data))
        self.leader_epochs.assign(epoch, base)
        self.log_end_offset = last + 1


class MemoryLogStore:
    """``flush`` makes everything durable, or one partition up to an offset, and says so."""

    def __init__(self) -> None:
        self.logs: dict[TopicIdPartition, MemoryLog] = {}
        self.deleted: list[TopicIdPartition] = []
        self.deletions = 0
        self.checkpoints: dict[TopicIdPartition, int] = {}
        self.producer_checks: list[int] = []
        self.strays: set[TopicIdPartition] = set()
        self.withheld: frozenset[TopicIdPartition] = frozenset()
        self.room = self
        self.is_crowded = False
        self.turns = RoomTurns(lambda: not self.is_crowded)
        self._on_flushed: Callable[[Sequence[MemoryLog]], None] = lambda _: None

    @property
    def is_full(self) -> bool:
        return any(log.is_full for log in self.logs.values())

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        for log in self.logs.values():
            log.is_full = is_full

    stores = ()

    def future_of(self, tip: TopicIdPartition) -> None:
        """No replica is moved: there is one folder."""

    @property
    def is_any_full(self) -> bool:
        return self.is_full

    @property
    def troubled_directories(self) -> set[Path]:
        return {DIRECTORY} if self.is_full else set()

    def tell(self, on_flushed: Callable[[Sequence[MemoryLog]], None]) -> None:
        """Call ``on_flushed`` with the logs that are flushed."""
        self._on_flushed = on_flushed

    def create(self, tip: TopicIdPartition, topic: str, *, assigned_at: int = 0) -> MemoryLog:
        return self.logs.setdefault(tip, MemoryLog(tip, topic, assigned_at))

    async def delete(self, *tips: TopicIdPartition) -> None:
        self.deletions += 1
        self.deleted += [tip for tip in tips if self.logs.pop(tip, None) is not None]

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        self.checkpoints.update(offsets)

    def note_strays(self, tips: Iterable[TopicIdPartition]) -> None:
        self.strays = set(tips)

    async def expire_producers(self, now_ms: int) -> None:
        self.producer_checks.append(now_ms)

    def segment_times(self) -> Callable[[MemoryLog], SegmentTimes]:
        return lambda log: {}

    async def wait_for_turn(self) -> None:
        await self.turns.wait()

    async def wait_for_room(self) -> None:
        """There is always room."""

    def flush(self, tip: TopicIdPartition | None = None, up_to: int | None = None) -> None:
        flushed = list(self.logs.values()) if tip is None else [self.logs[tip]]
        for log in flushed:
            log.flushed_offset = log.log_end_offset if up_to is None else up_to
        self._on_flushed(flushed)
