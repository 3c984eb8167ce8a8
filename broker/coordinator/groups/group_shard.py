"""The groups of one partition of __consumer_offsets, while this broker leads it in one epoch."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.known_groups import Group, KnownGroup, group_tombstones
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share_group_shard import ShareGroupShard
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
    Expected,
)
from quorate.broker.coordinator.groups.state.group_effects import (
    JoinAnswer,
    JoinRequest,
    Leaver,
    SyncAnswer,
    SyncRequest,
)
from quorate.broker.coordinator.shards.coordinator_appender import code_of
from quorate.broker.coordinator.shards.coordinator_records import (
    CommitOutcomeUnknown,
    LogRecord,
    TransactionOwner,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)


class GroupShard(ShareGroupShard):
    """Serves the requests about the groups of one partition, until the leadership ends."""

    # -- membership ------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Let a member join, see ``ClassicGroup.join``; return when the rebalance is complete."""
        known = self._groups.get(group_id)
        if known is None:
            if request.member_id:
                return JoinAnswer(errors_pb2.UNKNOWN_MEMBER_ID, request.member_id)
            known = self._create(group_id)
        group = self._as_classic(known)
        if group is None:
            return await self._join_consumers(known, request)
        return await self._join_classic(known, group, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Sync a member, see ``ClassicGroup.sync``; return when the assignment is known."""
        known = self._groups.get(group_id)
        if known is None:
            return SyncAnswer(errors_pb2.UNKNOWN_MEMBER_ID)
        group = known.classic
        if group is None:
            return await self._sync_consumer(known, request)
        token, future = self._expect()
        now_ms = self._clock.now_ms()
        with self._sound():
            self._carry_out(known, group, group.sync(request._replace(token=token), now_ms))
        answer = await self._answer(token, future)
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        """Take a heartbeat, see ``ClassicGroup.heartbeat``; return a Kafka error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.UNKNOWN_MEMBER_ID
        group = known.classic
        if group is None:
            return self._beat_of_consumer(known, member_id, instance_id, generation_id)
        return group.heartbeat(member_id, instance_id, generation_id, self._clock.now_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[int]:
        """Remove members that leave; return an error code for each."""
        known = self._groups.get(group_id)
        if known is None:
            return [errors_pb2.UNKNOWN_MEMBER_ID] * len(leavers)
        if isinstance(known.group, ShareGroup):
            ids = [leaver.member_id for leaver in leavers]
            return self._remove_members(known, known.group, ids)
        group = known.classic
        if group is None:
            return self._remove_consumers(known, leavers)
        with self._sound():
            codes, effects = group.leave(leavers, self._clock.now_ms())
            self._carry_out(known, group, effects)
        return codes

    # -- offsets ---------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        *,
        knows_epochs: bool = False,
    ) -> int:
        """Commit offsets; return one error code, because all of them are in the log or none is.

        ``knows_epochs`` says whether the client understands the error codes of consumer groups, as
        from OffsetCommit 9 on.
        """
        known = self._committing(group_id, generation_id)
        if known is None:
            return errors_pb2.ILLEGAL_GENERATION
        if isinstance(known.group, ConsumerGroup):
            code = known.group.check_commit(member_id, instance_id, generation_id, commits)
            if generation_id >= 0 and not knows_epochs and not known.group.is_classic(member_id):
                code = code or errors_pb2.UNSUPPORTED_VERSION
        elif isinstance(known.group, ShareGroup):
            code = known.group.check_commit(member_id, instance_id, generation_id, commits)
        else:
            now_ms = self._clock.now_ms()
            code = known.group.check_commit(member_id, instance_id, generation_id, now_ms)
        if code or not commits:
            return code
        sent = known.offsets.expect(commits)
        outcome = self._appends.append(_records_of(group_id, commits))
        outcome.add_done_callback(partial(_committed, known.offsets, sent, commits))
        return await code_of(outcome)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Check that a client may fetch the offsets of a group; return an error code.

        A member of a consumer group names itself and its epoch, and must be up to date (KIP-848).
        """
        known = self._groups.get(group_id)
        if known is None or not isinstance(known.group, ConsumerGroup):
            return errors_pb2.NONE
        return known.group.check_fetch(member_id, member_epoch)

    async def commit_in_transaction(
        self,
        group_id: str,
        transaction: TransactionOwner,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> int:
        """Commit offsets in a transaction; they count once it is committed (KIP-98, KIP-447)."""
        known = self._committing(group_id, generation_id)
        if known is None:
            return errors_pb2.ILLEGAL_GENERATION
        code = _transactional_code(known.group, member_id, instance_id, generation_id, commits)
        if code or not commits:
            return code
        expected = Expected(transaction.producer_id, commits)
        known.offsets.pending.expect(expected)
        self._open.add(transaction.producer_id, group_id)
        outcome = self._appends.append(_records_of(group_id, commits), transaction)
        outcome.add_done_callback(partial(_arrived, known.offsets, expected))
        return await code_of(outcome)

    def _committing(self, group_id: str, generation_id: int) -> KnownGroup | None:
        """Return the group, or None if it is unknown and the request names a generation.

        A group is created for a client that commits without being a member.
        """
        known = self._groups.get(group_id)
        if known is None and generation_id < 0:
            known = self._create(group_id)
        return known

    async def forget_offsets(self, group_id: str, tps: Sequence[TopicPartition]) -> int:
        """Forget those offsets durably; return an error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.GROUP_ID_NOT_FOUND
        return await self._forget(known, sorted(known.offsets.known().intersection(tps)))

    async def forget_partitions(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        """Forget the offsets that all groups committed for deleted partitions."""
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
        """Delete a group without members, with its offsets; return an error code."""
        known = self._groups.get(group_id)
        if known is None:
            return errors_pb2.GROUP_ID_NOT_FOUND
        if not known.group.is_empty:
            return errors_pb2.NON_EMPTY_GROUP
        if isinstance(known.group, ShareGroup):
            return await self._delete_share_group(known, known.group)
        code = await self._forget(known, sorted(known.offsets.known()), also_group=True)
        if not code:
            self._drop_if_forgotten(known)
        return code

    async def expire_offsets(
        self, retention_ms: int, topics_of: Callable[[Group], frozenset[str] | None]
    ) -> None:
        """Forget offsets that have expired, and groups of which nothing is left (KIP-211).

        ``topics_of`` returns the topics that a group with members consumes, or None if they are
        unknown.
        """
        now_ms = self._clock.wall_ms()
        for known in tuple(self._groups.values()):
            if not self._is_present(known, known.group):
                continue
            empty = known.group.is_empty
            consumed = frozenset[str]() if empty else topics_of(known.group)
            if consumed is None:
                continue
            expired = known.offsets.expired(
                now_ms,
                retention_ms,
                unused_since_ms=known.changed_at_ms if empty and known.classic else None,
                consumed_topics=consumed,
            )
            if not expired and not known.is_forgotten:
                continue
            gone = empty and len(expired) == len(known.offsets.known())
            code = await self._forget(known, expired, also_group=gone)
            if not code:
                self._drop_if_forgotten(known)

    def _drop_if_forgotten(self, known: KnownGroup) -> None:
        """Drop a forgotten group, unless it was used again while the tombstones were being
        written."""
        if known.is_forgotten and self._is_present(known, known.group):
            known.close()
            del self._groups[known.group.group_id]

    async def _forget(
        self, known: KnownGroup, tps: Sequence[TopicPartition], *, also_group: bool = False
    ) -> int:
        group_id = known.group.group_id
        records = [LogRecord(log_format.encode_offset_key(group_id, tp), None) for tp in tps]
        if also_group:
            records += group_tombstones(known.group)
        if not records:
            return errors_pb2.NONE
        outcome = self._appends.append(records)
        outcome.add_done_callback(partial(_forgotten, known.offsets, tps))
        return await code_of(outcome)


def _transactional_code(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation_id: int,
    tps: Iterable[TopicPartition],
) -> int:
    """Return the error code of a commit in a transaction; its client knows no member epochs."""
    if isinstance(group, ClassicGroup):
        return group.check_transactional_commit(member_id, instance_id, generation_id)
    code = group.check_commit(member_id, instance_id, generation_id, tps, in_transaction=True)
    return errors_pb2.ILLEGAL_GENERATION if code == errors_pb2.STALE_MEMBER_EPOCH else code


def _committed(
    offsets: CommittedOffsets,
    sent: int,
    commits: Mapping[TopicPartition, CommittedOffset],
    outcome: "asyncio.Future[int]",
) -> None:
    """Record commits once they are in the log, even if the client that sent them is gone."""
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
    """Forget offsets as soon as their tombstones are in the log.

    The next coordinator may have forgotten them, so this one must not return them any more.
    """
    place = _place_of(outcome)
    if place is not None:
        for tp in tps:
            offsets.forget(tp, place)


def _place_of(outcome: "asyncio.Future[int]") -> int | None:
    """Return the offset of the records in the log, though perhaps not committed, or None if
    absent."""
    error = outcome.exception()
    if error is None:
        return outcome.result()
    return error.place if isinstance(error, CommitOutcomeUnknown) else None


def _records_of(
    group_id: str, commits: Mapping[TopicPartition, CommittedOffset]
) -> list[LogRecord]:
    return [
        LogRecord(log_format.encode_offset_key(group_id, tp), log_format.encode_offset(commit))
        for tp, commit in commits.items()
    ]
