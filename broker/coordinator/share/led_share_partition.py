"""A share-partition at the leader of its partition, in one leader epoch (KIP-932)."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.group_keys import (
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
)
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.share_group_parts import GroupConfiguration
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import Source
from quorate.broker.coordinator.share.dead_letters.dead_letters import DeadLetters
from quorate.broker.coordinator.share.offset_resets import reset_timestamp_ms
from quorate.broker.coordinator.share.share_questions import Answer, Read, Write
from quorate.broker.coordinator.share.share_states import ShareStates, why_failed
from quorate.broker.coordinator.share.state.acquiring import ShareLimits
from quorate.broker.coordinator.share.state.record_state import NEVER_MS
from quorate.broker.coordinator.share.state.record_window import RecordWindow, window_of
from quorate.broker.coordinator.share.state.share_partition import Change, SharePartition
from quorate.broker.coordinator.share.state.stored_state import (
    UNKNOWN_START,
    SharePartitionKey,
    StateWrite,
)
from quorate.broker.replication.api import LATEST_TIMESTAMP_MS, Isolation
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.serving.fetch import end_of_reads
from quorate.broker.replication.wakeup import Wakeup
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_COORDINATOR_AWAY: Final = frozenset(
    {
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.BROKER_NOT_AVAILABLE,
    }
)
CONFIGURED_FOR_MS: Final = 100
"""The time for which the configuration of a group is taken as it was looked up."""
_FENCED: Final = frozenset({errors_pb2.FENCED_LEADER_EPOCH, errors_pb2.FENCED_STATE_EPOCH})


class ShareLeaderParts(NamedTuple):
    """What all share-partitions that are led here share."""

    config: GroupConfiguration
    replicas: ReplicaManager
    states: ShareStates
    clock: ShardClock
    lease: CoordinatorLease
    dead_letters: DeadLetters


class LedSharePartition:
    """The state machine of one share-partition, with its timer and those who wait for records.

    It is over when this broker no longer leads the partition in the same epoch, or when the share
    coordinator knows better. Whoever asks then gets another one.
    """

    def __init__(
        self, key: SharePartitionKey, hosted: HostedPartition, parts: ShareLeaderParts
    ) -> None:
        self.key = key
        self.hosted = hosted
        self.tp = hosted.tp
        self.leader_epoch = hosted.replica.leader_epoch
        self.is_reading = False
        """Whether a fetch reads records that it is about to hand out: no other one does."""
        self._has_news = False
        """Whether something changed while a fetch read, so that it may not have seen it."""
        self._parts = parts
        self._source = Source(key.group_id, hosted.tp, key.topic_id, self.leader_epoch)
        self._state = SharePartition(RecordWindow(0), self._limits())
        self.isolation = self._isolation()
        """The isolation level: the records that the group may see."""
        self._configured_until_ms = 0
        self._state_epoch = 0
        self._loading: asyncio.Task[None] | None = None
        self._is_loaded = False
        self._is_over = False
        self._waiting: dict[Wakeup, int] = {}
        """The fetches that wait, the one that has waited longest first, and the number of news at
        which each has looked and found too little."""
        self._news = 0
        """The number of times that there was something new."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = NEVER_MS
        self._tasks = BackgroundTasks()
        self._writes: dict[asyncio.Task[None], None] = {}

    # -- life ------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch, and may go on."""
        hosted = self.hosted
        leads = hosted.leads and hosted.replica.leader_epoch == self.leader_epoch
        is_here = self._parts.replicas.table.named(self.tp, self.key.topic_id) is hosted
        return leads and is_here and not self._is_over

    def require_lease(self) -> None:
        """Check that no other broker can have become the leader: it may have handed out what is
        available here, or have it accepted.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if not self._parts.lease.is_valid(self.tp, self.leader_epoch):
            raise self._not_leader()

    def end(self) -> None:
        """Forget everything; who waits is told to look elsewhere."""
        self._is_over = True
        self._tasks.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.hosted.fetch_waiters.pop(self, None)
        for waiting in tuple(self._waiting):
            waiting.wake()

    async def load(self) -> None:
        """Return when the state was read from the share coordinator.

        Raises:
            KafkaError: it cannot be read now.
        """
        if self._is_loaded:
            return
        if self._loading is None:
            self._loading = self._tasks.start(self._load())
            self._loading.add_done_callback(self._load_ended)
        loading = self._loading
        await asyncio.wait([loading])
        if loading.cancelled():
            raise self._not_leader()
        loading.result()

    def _load_ended(self, loading: "asyncio.Task[None]") -> None:
        self._loading = None
        if not loading.cancelled():
            loading.exception()  # Whoever waits raises it.

    async def _load(self) -> None:
        answer = await self._parts.states.ask(Read(self.key, self.leader_epoch))
        self._check(answer)
        start = answer.start_offset
        if start == UNKNOWN_START:
            # What the group begins with is kept, so that the next leader begins there as well.
            start = await self._first_offset()
            write = StateWrite(answer.state_epoch, self.leader_epoch, start, 0, ())
            self._check(await self._parts.states.ask(Write(self.key, write)))
        try:
            window = window_of(start, answer.batches)
        except ValueError as error:
            raise KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, f"{self}: {error}") from error
        self._state = SharePartition(window, self._limits())
        self._state_epoch = answer.state_epoch
        self._is_loaded = True

    async def _first_offset(self) -> int:
        """Return where the configuration of the group says that it begins."""
        reset = self._parts.config.group_value(self.key.group_id, SHARE_AUTO_OFFSET_RESET)
        timestamp_ms = reset_timestamp_ms(reset, self._parts.clock.wall_ms())
        list_offset = self._parts.replicas.list_offset
        found = list_offset(self.tp, timestamp_ms, self.leader_epoch)
        if not found.error_code and found.offset < 0:
            found = list_offset(self.tp, LATEST_TIMESTAMP_MS, self.leader_epoch)
        if found.error_code:
            raise KafkaError(found.error_code, f"{self}: where to begin is not known yet")
        return found.offset

    def _check(self, answer: Answer) -> None:
        """Check that the share coordinator has done what it was asked.

        Raises:
            KafkaError: with a code for clients.
        """
        code = answer.error_code
        if not code:
            return
        _log.info("%s: %s", self, why_failed(answer))
        if code in _FENCED:
            self.end()
            raise self._not_leader()
        if code in _COORDINATOR_AWAY:
            code = errors_pb2.COORDINATOR_NOT_AVAILABLE
        elif code in (errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.GROUP_ID_NOT_FOUND):
            self.end()
        elif code == errors_pb2.INVALID_REQUEST:
            # The group has no such state, perhaps because it was deleted.
            self.end()
            code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, f"{self}: {answer.error_message}")

    def _not_leader(self) -> KafkaError:
        return KafkaError(errors_pb2.NOT_LEADER_OR_FOLLOWER, f"{self} is led elsewhere, or may be")

    def __str__(self) -> str:
        return f"{self.tp} of share group {self.key.group_id}"

    # -- state -----------------------------------------------------------------------------------

    def _limits(self) -> ShareLimits:
        config, group_id = self._parts.config, self.key.group_id
        return ShareLimits(
            config.group_value(group_id, SHARE_RECORD_LOCK_DURATION.key),
            config.group_value(group_id, SHARE_DELIVERY_COUNT_LIMIT.key),
            config.group_value(group_id, SHARE_PARTITION_MAX_RECORD_LOCKS.key),
            config.group_value(group_id, SHARE_RENEW_ACKNOWLEDGE_ENABLE),
            self._parts.dead_letters.are_on(self._source),
        )

    def _isolation(self) -> Isolation:
        level = self._parts.config.group_value(self.key.group_id, SHARE_ISOLATION_LEVEL)
        return Isolation[level.upper()]

    def _configure(self) -> None:
        """Look at the configuration of the group, but not for each of its fetches."""
        now_ms = self._parts.clock.now_ms()
        if now_ms >= self._configured_until_ms:
            self._configured_until_ms = now_ms + CONFIGURED_FOR_MS
            self._state.set_limits(self._limits())
            self.isolation = self._isolation()

    @property
    def state(self) -> SharePartition:
        """The state, with the limits and the beginning of the log as they are now."""
        self._configure()
        self._state.log_begins_at(self.hosted.log.log_start_offset)
        return self._state

    @property
    def records_in_flight(self) -> int:
        return self._state.window.records

    @property
    def records_ahead(self) -> int:
        """The most records that there may be to hand out now: some of them may be in flight."""
        offset = self.state.fetch_offset()
        if offset is None:
            return 0
        return max(0, end_of_reads(self.hosted, self.isolation) - offset)

    @property
    def has_more(self) -> bool:
        """Whether records could be handed out now."""
        if not self._is_loaded or not self.is_current or self.is_reading:
            return False
        offset = self.state.fetch_offset()
        return offset is not None and offset < end_of_reads(self.hosted, self.isolation)

    async def write(self, changes: Sequence[Change]) -> None:
        """Have changes written, and return when they are in force. It goes on if the caller is
        cancelled.

        Raises:
            KafkaError: one of them is not written, or nobody knows.
        """
        writing = [self._started(self._write(change)) for change in changes]
        await asyncio.gather(*map(asyncio.shield, writing))

    def write_later(self, changes: Iterable[Change]) -> None:
        """Have changes written that nobody waits for."""
        for change in changes:
            self._started(self._write_unheeded(change))

    async def until_written(self) -> None:
        """Return when nothing is being written."""
        while self._writes:
            await asyncio.wait(tuple(self._writes))

    def _started(self, writing: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._tasks.start(writing)
        self._writes[task] = None
        task.add_done_callback(self._writes.pop)
        return task

    async def _write_unheeded(self, change: Change) -> None:
        try:
            await self._write(change)
        except KafkaError as error:
            _log.info("what is acknowledged late is not written: %s", error.message)

    async def _write(self, change: Change) -> None:
        write = StateWrite(
            self._state_epoch,
            self.leader_epoch,
            change.start_offset,
            change.final_records,
            change.batches,
        )
        answer = await self._write_dead_letters(change)
        if not answer.error_code:
            answer = await self._parts.states.ask(Write(self.key, write))
        if answer.error_code:
            self._state.failed(change, self._parts.clock.now_ms())
        else:
            self._state.committed(change)
        self.set_timer()
        self.wake()
        self._check(answer)

    async def _write_dead_letters(self, change: Change) -> Answer:
        """Write the dead letters of a change: it must not be in force before (KIP-1191)."""
        try:
            await self._parts.dead_letters.write(self._source, change.dead)
        except KafkaError as error:
            return Answer(error.code, error.message)
        except Exception:  # noqa: BLE001 - it is in the log
            # Without an answer the records would belong to nobody for ever.
            _log.exception("%s: dead letters are not written", self)
            return Answer(errors_pb2.UNKNOWN_SERVER_ERROR, "dead letters are not written")
        return Answer()

    # -- time ------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """Set the one timer to the first end of a lock."""
        due_ms = self._state.next_deadline_ms
        if due_ms == NEVER_MS or self._is_over:
            return
        if self._timer is not None:
            if self._timer_at_ms <= due_ms:
                return
            self._timer.cancel()
        wait_s = max(0, due_ms - self._parts.clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)
        self._timer_at_ms = due_ms

    def _expire(self) -> None:
        self._timer = None
        if self._is_over:
            return
        # Perhaps nobody has fetched since the configuration of the group was changed.
        changes = self.state.expire(self._parts.clock.now_ms())
        if changes:
            self.write_later(changes)
            self.wake()
        self.set_timer()

    # -- who waits -------------------------------------------------------------------------------

    def wait(self, waiting: Wakeup) -> None:
        """Wake ``waiting`` when there may be records, one of all who wait at a time. Who waits
        already keeps its place."""
        self._waiting.setdefault(waiting, -1)
        self.hosted.fetch_waiters[self] = None

    def is_turn_of(self, waiting: Wakeup) -> bool:
        """Return whether ``waiting`` may read: nobody else does, and nobody waits longer but those
        who have looked and found too little."""
        if self.is_reading:
            return False
        first, looked_at = next(iter(self._waiting.items()))
        return looked_at == self._news or first is waiting

    def wait_behind(self, waiting: Wakeup) -> None:
        """Have one who has looked and found too little wait behind all others; they look next."""
        if self._waiting.pop(waiting, None) is not None:
            self._waiting[waiting] = self._news
        first = next(iter(self._waiting.items()), None)
        if first is not None and first[1] != self._news and self.has_more:
            first[0].wake()

    def wait_no_more(self, waiting: Wakeup) -> None:
        """Forget who waited, and wake the next if there are records left."""
        self._waiting.pop(waiting, None)
        if not self._waiting:
            self.hosted.fetch_waiters.pop(self, None)
        elif self.has_more:
            self.wake()

    def wake(self) -> None:
        """Wake the one who has waited longest: it is a ``FetchWaiter`` of the partition.

        It keeps its place until it has looked. While another reads, it is woken afterwards.
        """
        if not self.is_current:
            for waiting in self._waiting:
                waiting.wake()
            return
        self._has_news = self.is_reading
        self._news += 1
        first = next(iter(self._waiting), None)
        if first is not None and not self.is_reading:
            self._waiting[first] = False
            first.wake()

    def end_reading(self) -> None:
        """Let others read, and wake one of them if something has changed meanwhile."""
        self.is_reading = False
        if self._has_news:
            self.wake()
