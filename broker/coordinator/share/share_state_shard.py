"""The share-partitions of one partition of __share_group_state, while this broker leads it in one
epoch."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_appender import CoordinatorAppender
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    UnknownRecord,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.share.share_questions import (
    Answer,
    Delete,
    Initialize,
    Question,
    Read,
    Summarize,
    Write,
)
from quorate.broker.coordinator.share.state import share_log_format as log_format
from quorate.broker.coordinator.share.state.record_state import StateBatch
from quorate.broker.coordinator.share.state.stored_state import (
    NO_EPOCH,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    SharePartitionKey,
    StateWrite,
    StoredShareState,
)
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

BATCHES_MAX: Final = 20_000
"""The most ranges of records in different states that are kept of one share-partition. A group has
no more than `group.share.max.partition.max.record.locks` records in flight, 10,000 at most."""


class ShardSettings(NamedTuple):
    """How often snapshots are written: after so many updates, and after so long without any."""

    updates_per_snapshot: int
    cold_after_ms: int


class _Kept:
    """A share-partition, and where the log has what is needed to load it."""

    __slots__ = ("needed_from", "state", "written_ms")

    def __init__(self, state: StoredShareState, needed_from: int, written_ms: int) -> None:
        self.state = state
        self.needed_from = needed_from
        """The offset of its newest snapshot."""
        self.written_ms = written_ms
        """When the newest snapshot was written."""


class ShareStateShard:
    """Answers questions about share-partitions, until the leadership ends.

    It goes on from what it has decided, and answers when that is committed. What was decided and
    did not get into the log does no harm: a leader that was not answered says it again.
    """

    def __init__(
        self, name: str, log: LedPartition, settings: ShardSettings, wall_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self.is_loading = True
        self._log = log
        self._settings = settings
        self._wall_ms = wall_ms
        self._appends = CoordinatorAppender(log)
        self._kept: dict[SharePartitionKey, _Kept] = {}
        self._is_over = False

    def __len__(self) -> int:
        return len(self._kept)

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the states from the log."""
        self._kept.clear()
        async for entry in self._log.replay():
            if isinstance(entry, LogBatch):
                for number, record in enumerate(entry.records):
                    try:
                        self._load(record, entry.place + number)
                    except UnknownRecord as error:
                        _log.warning(
                            "%s: a record at offset %d is passed over: %s",
                            self.name,
                            entry.place + number,
                            error,
                        )
        if self._is_over:
            return
        self.is_loading = False
        _log.info("%s: coordinator of %d share-partitions", self.name, len(self._kept))

    def _load(self, record: LogRecord, place: int) -> None:
        is_snapshot, key = log_format.read_key(record.key)
        if not is_snapshot:
            known = self._kept.get(key)
            if known is not None and record.value is not None:
                known.state.take(log_format.read_update(record.value))
                known.state.updates += 1
        elif record.value is None:
            self._kept.pop(key, None)
        else:
            state = log_format.read_snapshot(record.value)
            self._kept[key] = _Kept(state, place, self._wall_ms())

    def end(self, error_code: int) -> None:
        """End, because the leadership is lost or the broker stops."""
        self._is_over = True
        self._appends.end(error_code)

    # -- questions -------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answer:
        """Answer a question when what it changes is committed.

        Raises:
            KafkaError: it is refused, or the log does not take it.
        """
        match question:
            case Initialize(key, state_epoch, start_offset):
                return await self._initialize(key, state_epoch, start_offset)
            case Read(key, leader_epoch):
                return await self._read(key, leader_epoch)
            case Write(key, write):
                return await self._write(key, write)
            case Delete(key):
                return await self._delete(key)
            case Summarize(key):
                return self._summary(key)

    async def _initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Answer:
        known = self._kept.get(key)
        epochs = (state_epoch, 0, 0)
        if known is not None:
            known.state.check(state_epoch, NO_EPOCH)
            before = known.state
            epochs = (state_epoch, before.leader_epoch, before.snapshot_epoch + 1)
        final_records = UNKNOWN_COUNT if start_offset == UNKNOWN_START else 0
        state = StoredShareState(start_offset, *epochs, final_records)
        self._kept[key] = _Kept(state, 0 if known is None else known.needed_from, self._wall_ms())
        await self._snapshot(key)
        return Answer()

    async def _read(self, key: SharePartitionKey, leader_epoch: int) -> Answer:
        state = self._known(key)
        state.check(NO_EPOCH, leader_epoch)
        state.lead_in(leader_epoch)
        answer = _full(state)
        # What is written last is committed last: so everything is that the answer tells.
        await self._append_update(key, StateWrite(NO_EPOCH, state.leader_epoch, -1, -1, ()))
        return answer

    async def _write(self, key: SharePartitionKey, write: StateWrite) -> Answer:
        state = self._known(key)
        state.check(write.state_epoch, write.leader_epoch)
        state.take(write)
        if len(state.batches) > BATCHES_MAX:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"{len(state.batches)} ranges of records in one share-partition: at most "
                f"{BATCHES_MAX}",
            )
        await self._append_update(key, write)
        return Answer()

    async def _delete(self, key: SharePartitionKey) -> Answer:
        if self._kept.pop(key, None) is not None:
            await self._append([log_format.tombstone(key)])
        return Answer()

    def _summary(self, key: SharePartitionKey) -> Answer:
        known = self._kept.get(key)
        if known is None:
            return Answer()
        return _full(known.state)._replace(batches=())

    def _known(self, key: SharePartitionKey) -> StoredShareState:
        known = self._kept.get(key)
        if known is None:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"group {key.group_id!r} has not begun with partition {key.partition} of that "
                "topic: its coordinator initializes it",
            )
        return known.state

    # -- the log ---------------------------------------------------------------------------------

    async def _append_update(self, key: SharePartitionKey, write: StateWrite) -> None:
        state = self._kept[key].state
        if state.updates >= self._settings.updates_per_snapshot:
            state.snapshot_epoch += 1
            await self._snapshot(key)
            return
        state.updates += 1
        said = write._replace(
            leader_epoch=max(write.leader_epoch, state.leader_epoch),
            final_records=state.final_records,
        )
        await self._append([log_format.update_record(key, state.snapshot_epoch, said)])

    async def _snapshot(self, key: SharePartitionKey) -> None:
        kept = self._kept[key]
        kept.state.updates = 0
        now_ms = self._wall_ms()
        place = await self._append([log_format.snapshot_record(key, kept.state, now_ms)])
        kept.needed_from, kept.written_ms = max(kept.needed_from, place), now_ms

    async def _append(self, records: list[LogRecord]) -> int:
        return await self._appends.append(records)

    # -- maintenance -----------------------------------------------------------------------------

    async def refresh_cold(self) -> None:
        """Write the states again that were not written for long, so that what stands before them
        can be deleted."""
        due_ms = self._wall_ms() - self._settings.cold_after_ms
        for key, kept in tuple(self._kept.items()):
            if kept.written_ms <= due_ms and self._kept.get(key) is kept:
                kept.state.snapshot_epoch += 1
                await self._snapshot(key)

    def needed_from(self, log_end_offset: int) -> int:
        """Return the offset before which no record is needed any more."""
        return min((kept.needed_from for kept in self._kept.values()), default=log_end_offset)

    async def forget_topics(self, gone: Collection[TopicId]) -> None:
        """Forget the share-partitions of topics that were deleted."""
        records = [log_format.tombstone(key) for key in tuple(self._kept) if key.topic_id in gone]
        for key in tuple(self._kept):
            if key.topic_id in gone:
                del self._kept[key]
        if records:
            await self._append(records)

    def topic_ids(self) -> set[TopicId]:
        """Return the topics that share-partitions are known of."""
        return {key.topic_id for key in self._kept}


def _full(state: StoredShareState) -> Answer:
    batches: Iterable[StateBatch] = state.batches
    return Answer(
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        final_records=state.final_records,
        batches=tuple(batches),
    )
