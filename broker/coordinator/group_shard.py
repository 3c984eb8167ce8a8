"""The groups of one partition of __consumer_offsets, while this broker leads it in one epoch."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.coordinator.appends import InDoubt, code_of
from broker.coordinator.groups import log_format
from broker.coordinator.groups.basis import GroupState
from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.effects import (
    JoinAnswer,
    JoinRequest,
    Leaver,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.pending_offsets import Expected
from broker.coordinator.known_groups import KnownGroup
from broker.coordinator.log_entries import LogRecord, TransactionOwner
from broker.coordinator.shard_basis import ShardBasis
from broker.errors import error_name
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)


class GroupShard(ShardBasis):
    """Loads, answers, and ends when the leadership does."""

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
        """As ``ConsumerGroup.heartbeat``; a Kafka error code."""
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
        known = self._committing(group_id, generation_id)
        if known is None:
            return errors_pb2.ILLEGAL_GENERATION
        now_ms = self._clock.now_ms()
        code = known.group.check_commit(member_id, instance_id, generation_id, now_ms)
        if code or not commits:
            return code
        sent = known.offsets.expect(commits)
        outcome = self._appends.append(_records_of(group_id, commits))
        outcome.add_done_callback(partial(_committed, known.offsets, sent, commits))
        return await code_of(outcome)

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
        known = self._committing(group_id, generation_id)
        if known is None:
            return errors_pb2.ILLEGAL_GENERATION
        code = known.group.check_transactional_commit(member_id, instance_id, generation_id)
        if code or not commits:
            return code
        expected = Expected(transaction.producer_id, commits)
        known.offsets.pending.expect(expected)
        self._open.add(transaction.producer_id, group_id)
        outcome = self._appends.append(_records_of(group_id, commits), transaction)
        outcome.add_done_callback(partial(_arrived, known.offsets, expected))
        return await code_of(outcome)

    def _committing(self, group_id: str, generation_id: int) -> KnownGroup | None:
        """The group, made for whoever commits without being a member; None: it was forgotten."""
        known = self._groups.get(group_id)
        if known is None and generation_id < 0:
            known = self._create(group_id)
        return known

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

    async def delete(self, group_id: str) -> int:
        """Have a group without members forgotten, with its offsets; an error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.GROUP_ID_NOT_FOUND
        if known.group.state is not GroupState.EMPTY:
            return errors_pb2.NON_EMPTY_GROUP
        code = await self._forget(known, sorted(known.offsets.known()), also_group=True)
        if not code:
            self._drop_if_forgotten(known)
        return code

    async def expire_offsets(
        self, retention_ms: int, topics_of: Callable[[ConsumerGroup], frozenset[str] | None]
    ) -> None:
        """Forget offsets whose time is up, and groups of which nothing is left (KIP-211).

        ``topics_of``: what a group with members consumes; None: nobody can tell.
        """
        now_ms = self._clock.wall_ms()
        for known in tuple(self._groups.values()):
            if not self._is_known(known):
                continue
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
            if not code:
                self._drop_if_forgotten(known)

    def _is_known(self, known: KnownGroup) -> bool:
        """Whether it still is the group of that name: it may have been deleted, and made anew."""
        return self._groups.get(known.group.group_id) is known

    def _drop_if_forgotten(self, known: KnownGroup) -> None:
        """Unless it came to be used again while that was on its way to the log."""
        if known.is_forgotten and self._is_known(known):
            del self._groups[known.group.group_id]

    async def _forget(
        self, known: KnownGroup, tps: Sequence[TopicPartition], *, also_group: bool = False
    ) -> int:
        group_id = known.group.group_id
        records = [LogRecord(log_format.encode_offset_key(group_id, tp), None) for tp in tps]
        if also_group:
            records.append(LogRecord(log_format.encode_group_key(group_id), None))
        if not records:
            return errors_pb2.NONE
        outcome = self._appends.append(records)
        outcome.add_done_callback(partial(_forgotten, known.offsets, tps))
        return await code_of(outcome)


def _committed(
    offsets: CommittedOffsets,
    sent: int,
    commits: Mapping[TopicPartition, CommittedOffset],
    outcome: "asyncio.Future[int]",
) -> None:
    """What is in the log is known here, even if whoever wanted it there is gone."""
    offsets.expect_no_more(sent)
    if outcome.exception() is None:
        for tp, commit in commits.items():
            offsets.record(tp, commit, outcome.result())


def _arrived(offsets: CommittedOffsets, expected: Expected, outcome: "asyncio.Future[int]") -> None:
    place = _place_of(outcome)
    if place is None:
        offsets.pending.give_up(expected)
    else:
        offsets.arrive(expected, place)


def _forgotten(
    offsets: CommittedOffsets, tps: Sequence[TopicPartition], outcome: "asyncio.Future[int]"
) -> None:
    """What may be forgotten by the next coordinator must not be told by this one."""
    place = _place_of(outcome)
    if place is not None:
        for tp in tps:
            offsets.forget(tp, place)


def _place_of(outcome: "asyncio.Future[int]") -> int | None:
    """Where it stands in the log, though perhaps not for good; None: nowhere."""
    error = outcome.exception()
    if error is None:
        return outcome.result()
    return error.place if isinstance(error, InDoubt) else None


def _records_of(
    group_id: str, commits: Mapping[TopicPartition, CommittedOffset]
) -> list[LogRecord]:
    return [
        LogRecord(log_format.encode_offset_key(group_id, tp), log_format.encode_offset(commit))
        for tp, commit in commits.items()
    ]
