"""What a shard of groups is made of: loading, looking, carrying out what groups ask for, ending."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.coordinator.appends import Appends, CoordinatorLog
from broker.coordinator.groups import log_format
from broker.coordinator.groups.basis import GroupLimits
from broker.coordinator.groups.effects import (
    Effect,
    JoinAnswer,
    Persist,
    Reply,
    SyncAnswer,
    Token,
)
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.members import NEVER_MS
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.stored import stored
from broker.coordinator.known_groups import GroupsInLog, KnownGroup, OpenTransactions
from broker.coordinator.log_entries import LogRecord, TransactionEnd
from broker.errors import KafkaError
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

Answer = JoinAnswer | SyncAnswer


class ShardClock(NamedTuple):
    """``now_ms``: monotonic, of the event loop. ``wall_ms``: since the epoch."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]


class ShardBasis:
    """The part of a shard that no request is about."""

    def __init__(
        self, name: str, log: CoordinatorLog, limits: GroupLimits, clock: ShardClock
    ) -> None:
        self.is_loading = True
        self.name = name
        self._log = log
        self._limits = limits
        self._clock = clock
        self._appends = Appends(log)
        self._groups: dict[str, KnownGroup] = {}
        self._waiting: dict[Token, asyncio.Future[Answer]] = {}
        self._token: Token = 0
        self._is_over = False
        self._open = OpenTransactions()
        self._ends_meanwhile: list[TransactionEnd] = []
        """Markers written while the log is being read: it may have been read beyond, or not."""

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read what the log knows; until then every request is to be tried again."""
        in_log = GroupsInLog(self.name)
        self._ends_meanwhile.clear()
        async for entry in self._log.replay():
            in_log.take(entry)
        for end in self._ends_meanwhile:
            in_log.take(end)
        self._open = in_log.open
        now_ms = self._clock.now_ms()
        for known in in_log.groups(self._limits, now_ms):
            self._groups[known.group.group_id] = known
        if self._is_over:
            return
        self.is_loading = False
        for known in self._groups.values():
            self._set_timer(known)
        _log.info("%s: coordinator of %d groups", self.name, len(self._groups))

    def end(self, error_code: int) -> None:
        """This broker leads no longer, or stops: whoever waits is told by ``error_code``."""
        self._is_over = True
        for known in self._groups.values():
            if known.timer is not None:
                known.timer.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(KafkaError(error_code, f"{self.name} is led elsewhere"))
        self._appends.end(error_code)

    def end_transaction(self, end: TransactionEnd) -> None:
        """The marker is in the log for good: what was pending counts from now on, or never."""
        if self.is_loading:
            self._ends_meanwhile.append(end)
            return
        self._open.end(end, self.offsets)

    # -- looking ---------------------------------------------------------------------------------

    def group(self, group_id: str) -> ConsumerGroup | None:
        known = self._groups.get(group_id)
        return None if known is None else known.group

    def __iter__(self) -> Iterator[KnownGroup]:
        return iter(self._groups.values())

    def offsets(self, group_id: str) -> CommittedOffsets:
        """What the group has committed; of one that nobody knows, nothing."""
        known = self._groups.get(group_id)
        return CommittedOffsets() if known is None else known.offsets

    def partitions(self) -> set[TopicPartition]:
        """All of which something is committed, or pending."""
        return {tp for known in self._groups.values() for tp in known.offsets.known()}

    # -- carrying out ----------------------------------------------------------------------------

    def _create(self, group_id: str) -> KnownGroup:
        known = KnownGroup(ConsumerGroup(group_id, self._limits))
        known.changed_at_ms = self._clock.wall_ms()
        self._groups[group_id] = known
        return known

    def _expect(self) -> "tuple[Token, asyncio.Future[Answer]]":
        self._token += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._token] = future
        return self._token, future

    async def _answer(self, token: Token, future: "asyncio.Future[Answer]") -> Answer:
        try:
            return await future
        finally:
            self._waiting.pop(token, None)

    def _carry_out(self, known: KnownGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, answer):
                    future = self._waiting.get(token)
                    if future is not None and not future.done():
                        future.set_result(answer)
                case Persist(attempt):
                    self._persist(known, attempt)
        self._set_timer(known)

    def _persist(self, known: KnownGroup, attempt: int) -> None:
        known.changed_at_ms = self._clock.wall_ms()
        group_id = known.group.group_id
        value = log_format.encode_group(stored(known.group, known.changed_at_ms))
        outcome = self._appends.append([LogRecord(log_format.encode_group_key(group_id), value)])
        outcome.add_done_callback(partial(self._persisted, known, attempt))

    def _persisted(self, known: KnownGroup, attempt: int, outcome: "asyncio.Future[int]") -> None:
        error = outcome.exception()
        if self._is_over:
            return
        if error is not None and not isinstance(error, KafkaError):
            raise error
        code = errors_pb2.NONE if error is None else error.code
        self._carry_out(known, known.group.persisted(attempt, code, self._clock.now_ms()))

    def _set_timer(self, known: KnownGroup) -> None:
        """One timer per group, for the first of its deadlines; heartbeats only put them off."""
        due_ms = known.group.next_deadline_ms
        if due_ms == NEVER_MS or (known.timer is not None and known.timer_at_ms <= due_ms):
            return
        if known.timer is not None:
            known.timer.cancel()
        wait_s = max(0, due_ms - self._clock.now_ms()) / 1000
        known.timer = asyncio.get_running_loop().call_later(wait_s, self._expire, known)
        known.timer_at_ms = due_ms

    def _expire(self, known: KnownGroup) -> None:
        known.timer = None
        if not self._is_over:
            self._carry_out(known, known.group.expire(self._clock.now_ms()))
