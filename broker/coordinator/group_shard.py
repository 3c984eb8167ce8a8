"""The groups of one partition of __consumer_offsets, while this broker leads it in one epoch."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.coordinator.appends import Appends, CoordinatorLog, InDoubt
from broker.coordinator.groups import log_format
from broker.coordinator.groups.basis import GroupLimits, GroupState
from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.effects import (
    Effect,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Persist,
    Reply,
    SyncAnswer,
    SyncRequest,
    Token,
)
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.members import NEVER_MS
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.pending_offsets import Expected
from broker.coordinator.groups.stored import stored
from broker.coordinator.known_groups import GroupsInLog, KnownGroup, OpenTransactions
from broker.coordinator.log_entries import LogRecord, TransactionEnd, TransactionOwner
from broker.errors import KafkaError, error_name
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

Answer = JoinAnswer | SyncAnswer


class ShardClock(NamedTuple):
    """``now_ms``: monotonic, of the event loop. ``wall_ms``: since the epoch."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]


class GroupShard:
    """Loads, answers, and ends when the leadership does."""

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

    # -- membership ------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """As ``ConsumerGroup.join``; returns when the group has come together."""
        known = self._groups.get(group_id)
        if known is None:
            if request.member_id:
                return JoinAnswer(errors_pb2.UNKNOWN_MEMBER_ID, request.member_id)
            known = self._create(group_id)
        token, future = self._expect()
        now_ms = self._clock.now_ms()
        self._carry_out(known, known.group.join(request._replace(token=token), now_ms))
        answer = await self._answer(token, future)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """As ``ConsumerGroup.sync``; returns when the assignment is known."""
        known = self._groups.get(group_id)
        if known is None:
            return SyncAnswer(errors_pb2.UNKNOWN_MEMBER_ID)
        token, future = self._expect()
        now_ms = self._clock.now_ms()
        self._carry_out(known, known.group.sync(request._replace(token=token), now_ms))
        answer = await self._answer(token, future)
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.UNKNOWN_MEMBER_ID
        now_ms = self._clock.now_ms()
        return known.group.heartbeat(member_id, instance_id, generation_id, now_ms)

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[int]:
        """An error code for each."""
        known = self._groups.get(group_id)
        if known is None:
            return [errors_pb2.UNKNOWN_MEMBER_ID] * len(leavers)
        codes, effects = known.group.leave(leavers, self._clock.now_ms())
        self._carry_out(known, effects)
        return codes

    # -- offsets ---------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> int:
        """The error code that holds for all of ``commits``: they are in the log, or none is."""
        known = self._groups.get(group_id)
        if known is None:
            if generation_id >= 0:
                return errors_pb2.ILLEGAL_GENERATION
            known = self._create(group_id)
        now_ms = self._clock.now_ms()
        code = known.group.check_commit(member_id, instance_id, generation_id, now_ms)
        if code or not commits:
            return code
        try:
            place = await self._appends.append(_records_of(group_id, commits))
        except KafkaError as error:
            return error.code
        for tp, commit in commits.items():
            known.offsets.record(tp, commit, place)
        return errors_pb2.NONE

    async def commit_in_transaction(
        self,
        group_id: str,
        transaction: TransactionOwner,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> int:
        """As ``commit``; they count once the transaction is committed (KIP-98, KIP-447)."""
        known = self._groups.get(group_id)
        if known is None:
            if generation_id >= 0:
                return errors_pb2.ILLEGAL_GENERATION
            known = self._create(group_id)
        code = known.group.check_transactional_commit(member_id, instance_id, generation_id)
        if code or not commits:
            return code
        producer_id = transaction.producer_id
        expected = Expected(producer_id, commits)
        known.offsets.pending.expect(expected)
        self._open.add(producer_id, group_id)
        code = errors_pb2.NONE
        try:
            place = await self._appends.append(_records_of(group_id, commits), transaction)
        except InDoubt as error:
            code, place = error.code, error.place
        except KafkaError as error:
            known.offsets.pending.give_up(expected)
            return error.code
        known.offsets.arrive(expected, place)
        return code

    def end_transaction(self, end: TransactionEnd) -> None:
        """The marker is in the log for good: what was pending counts from now on, or never."""
        if self.is_loading:
            self._ends_meanwhile.append(end)
            return
        self._open.end(end, self.offsets)

    def offsets(self, group_id: str) -> CommittedOffsets:
        """What the group has committed; of one that nobody knows, nothing."""
        known = self._groups.get(group_id)
        return CommittedOffsets() if known is None else known.offsets

    async def forget_offsets(self, group_id: str, tps: Sequence[TopicPartition]) -> int:
        """Have those offsets forgotten, durably; an error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.GROUP_ID_NOT_FOUND
        return await self._forget(known, sorted(known.offsets.known().intersection(tps)))

    async def forget_partitions(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        """Have all groups forget what they committed of partitions that are no more."""
        codes = await asyncio.gather(
            *(
                self._forget(known, tps)
                for known in tuple(self._groups.values())
                if (tps := sorted(filter(is_gone, known.offsets.known())))
            )
        )
        failed = sorted({error_name(code) for code in codes if code})
        if failed:
            _log.warning(
                "%s: offsets of deleted partitions stay until the next check: %s",
                self.name,
                ", ".join(failed),
            )

    def partitions(self) -> set[TopicPartition]:
        """All of which something is committed, or pending."""
        return {tp for known in self._groups.values() for tp in known.offsets.known()}

    async def delete(self, group_id: str) -> int:
        """Have a group without members forgotten, with its offsets; an error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.GROUP_ID_NOT_FOUND
        if known.group.state is not GroupState.EMPTY:
            return errors_pb2.NON_EMPTY_GROUP
        code = await self._forget(known, sorted(known.offsets.known()), also_group=True)
        if not code and known.is_forgotten:
            self._groups.pop(group_id, None)
        return code

    async def expire_offsets(
        self, retention_ms: int, topics_of: Callable[[ConsumerGroup], frozenset[str] | None]
    ) -> None:
        """Forget offsets whose time is up, and groups of which nothing is left (KIP-211).

        ``topics_of``: what a group with members consumes; None: nobody can tell.
        """
        now_ms = self._clock.wall_ms()
        for group_id, known in list(self._groups.items()):
            empty = known.group.state is GroupState.EMPTY
            consumed = frozenset[str]() if empty else topics_of(known.group)
            if consumed is None:
                continue
            expired = known.offsets.expired(
                now_ms,
                retention_ms,
                unused_since_ms=known.changed_at_ms if empty else None,
                consumed_topics=consumed,
            )
            if not expired and not known.is_forgotten:
                continue
            gone = empty and len(expired) == len(known.offsets.known())
            code = await self._forget(known, expired, also_group=gone)
            if not code and known.is_forgotten and self._groups.get(group_id) is known:
                del self._groups[group_id]

    # -- looking ---------------------------------------------------------------------------------

    def group(self, group_id: str) -> ConsumerGroup | None:
        known = self._groups.get(group_id)
        return None if known is None else known.group

    def __iter__(self) -> Iterator[KnownGroup]:
        return iter(self._groups.values())

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

    async def _forget(
        self, known: KnownGroup, tps: Sequence[TopicPartition], *, also_group: bool = False
    ) -> int:
        group_id = known.group.group_id
        records = [LogRecord(log_format.encode_offset_key(group_id, tp), None) for tp in tps]
        if also_group:
            records.append(LogRecord(log_format.encode_group_key(group_id), None))
        if not records:
            return errors_pb2.NONE
        try:
            place = await self._appends.append(records)
        except KafkaError as error:
            return error.code
        for tp in tps:
            known.offsets.forget(tp, place)
        return errors_pb2.NONE

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


def _records_of(
    group_id: str, commits: Mapping[TopicPartition, CommittedOffset]
) -> list[LogRecord]:
    return [
        LogRecord(log_format.encode_offset_key(group_id, tp), log_format.encode_offset(commit))
        for tp, commit in commits.items()
    ]
