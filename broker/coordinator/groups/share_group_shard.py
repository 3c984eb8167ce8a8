"""The share groups (KIP-932) of one partition of __consumer_offsets."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.group_writes import GroupWrites
from quorate.broker.coordinator.groups.known_groups import KnownGroup
from quorate.broker.coordinator.groups.mixed_group_shard import MixedGroupShard
from quorate.broker.coordinator.groups.share import share_group_log_format
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share.share_member import (
    ShareHeartbeat,
    ShareHeartbeatAnswer,
)
from quorate.broker.coordinator.groups.share_group_work import ShareGroupWork
from quorate.broker.coordinator.groups.state.group_effects import (
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2


class ShareGroupShard(MixedGroupShard):
    """The part of a shard that serves share groups."""

    async def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """Take a heartbeat; return when what it changes is in the log.

        A heartbeat that changes what the member subscribes to waits a while for the target
        assignment that takes this into account, so that a member that joins gets partitions at
        once.

        Raises:
            KafkaError: the member is refused, or must join again.
        """
        if request.leaves:
            known, group, _ = self._share_group(group_id)
            with self._sound():
                self._write_share(known, group.leave(request.member_id))
            await self._until_written(known)
            return ShareHeartbeatAnswer(request.member_id, request.member_epoch)
        known, group, work = self._share_group(group_id, creates=request.joins)
        with self._sound():
            member, records, has_changed = group.subscribe(request, self._clock.now_ms())
            self._groups[group_id] = known
            self._write_share(known, records)
        if has_changed:
            await work.until_assigned()
        with self._sound():
            answer, records = group.reconcile(member, request, has_changed=has_changed)
            self._write_share(known, records)
        await self._until_written(known)
        return answer

    # -- administration --------------------------------------------------------------------------

    async def reset_share_offsets(
        self, group_id: str, offsets: Mapping[SharePartitionKey, int]
    ) -> Mapping[SharePartitionKey, tuple[int, str]]:
        """Have a group without members begin again at these offsets; return an error code and a
        message for each.

        Raises:
            KafkaError: the group has members, or is no share group.
        """
        known, group, work = self._share_group(group_id, creates=True)
        self._require_empty(group)
        with self._sound():
            if self._groups.get(group_id) is not known:
                self._groups[group_id] = known
                self._write_share(known, group.begin())
        return await work.initialize_at(offsets)

    async def delete_share_offsets(
        self, group_id: str, topic_ids: Collection[TopicId]
    ) -> Mapping[TopicId, tuple[int, str]]:
        """Have a group without members forget topics; return an error code and a message for each.

        Raises:
            KafkaError: the group has members, or is no share group.
        """
        _, group, work = self._share_group(group_id)
        self._require_empty(group)
        known = {*group.topics.initialized, *group.topics.initializing, *group.topics.deleting}
        outcomes = await work.delete_states(known.intersection(topic_ids))
        absent = (
            errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
            "There is no offset information to delete.",
        )
        return {topic_id: outcomes.get(topic_id, absent) for topic_id in topic_ids}

    async def _delete_share_group(self, known: KnownGroup, group: ShareGroup) -> int:
        """Delete a group without members, and before it all of its states; return an error code."""
        if known.share_work is None:
            return errors_pb2.COORDINATOR_NOT_AVAILABLE
        topics = group.topics
        everything = {*topics.initialized, *topics.initializing, *topics.deleting}
        outcomes = await known.share_work.delete_states(everything)
        codes = [code for code, _ in outcomes.values() if code]
        if codes:
            return codes[0]
        if not group.is_empty:
            return errors_pb2.NON_EMPTY_GROUP
        known.close()
        if self._groups.get(group.group_id) is known:
            del self._groups[group.group_id]
        records = share_group_log_format.group_tombstones(group.group_id)
        await self._appends.append(records)
        return errors_pb2.NONE

    @staticmethod
    def _require_empty(group: ShareGroup) -> None:
        if not group.is_empty:
            raise KafkaError(
                errors_pb2.NON_EMPTY_GROUP,
                f"share group {group.group_id!r} has {len(group.members)} members: stop them first",
            )

    # -- groups ----------------------------------------------------------------------------------

    def share_group(self, group_id: str) -> ShareGroup:
        """Return a share group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        return self._share_group(group_id)[1]

    def _share_group(
        self, group_id: str, *, creates: bool = False
    ) -> tuple[KnownGroup, ShareGroup, ShareGroupWork]:
        """Return the group, or a new one that is not registered yet.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        known = self._groups.get(group_id)
        if known is not None:
            if isinstance(known.group, ShareGroup) and known.share_work is not None:
                return known, known.group, known.share_work
            raise KafkaError(
                errors_pb2.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )
        if not creates:
            raise KafkaError(errors_pb2.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        parts = self._share_parts
        group = ShareGroup(group_id, parts.limits_of(group_id), parts.topics)
        new = KnownGroup(group)
        return new, group, self._start_share(new, group)

    def _start_share(self, known: KnownGroup, group: ShareGroup) -> ShareGroupWork:
        known.writes = writes = GroupWrites(self._appends)
        known.share_work = ShareGroupWork(
            group, self._share_parts, self._clock, writes, partial(self._change_share, known)
        )
        return known.share_work

    def _begin(self, known: KnownGroup) -> None:
        if isinstance(known.group, ShareGroup):
            self._start_share(known, known.group)
            with self._sound():
                self._write_share(known, known.group.topics_changed())
        else:
            super()._begin(known)

    async def topics_changed(self, names: Collection[str]) -> None:
        """Tell the groups of topics that were created, deleted or have grown."""
        await super().topics_changed(names)
        for known in tuple(self._groups.values()):
            group = known.group
            if not isinstance(group, ShareGroup) or self._is_over:
                continue
            self._forget_gone(known, group)
            if group.subscribes_to(names):
                self._change_share(known, group.topics_changed)

    def _forget_gone(self, known: KnownGroup, group: ShareGroup) -> None:
        """Forget deleted topics; the share coordinator forgets their states by itself."""
        topics, exists = group.topics, self._share_parts.topics.topic_name
        everything = {*topics.initialized, *topics.initializing, *topics.deleting}
        gone = [one for one in everything if exists(one) is None]
        if gone:
            self._change_share(known, lambda: group.set_topics(group.topics.removed(gone)))

    # -- the classic protocol --------------------------------------------------------------------

    async def _join_consumers(self, known: KnownGroup, request: JoinRequest) -> JoinAnswer:
        if isinstance(known.group, ShareGroup):
            return JoinAnswer(errors_pb2.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        return await super()._join_consumers(known, request)

    async def _sync_consumer(self, known: KnownGroup, request: SyncRequest) -> SyncAnswer:
        if isinstance(known.group, ShareGroup):
            return SyncAnswer(errors_pb2.UNKNOWN_MEMBER_ID)
        return await super()._sync_consumer(known, request)

    def _beat_of_consumer(
        self, known: KnownGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        if isinstance(known.group, ShareGroup):
            return errors_pb2.UNKNOWN_MEMBER_ID
        return super()._beat_of_consumer(known, member_id, instance_id, generation_id)

    # -- carrying out ----------------------------------------------------------------------------

    def _change_share(self, known: KnownGroup, change: Callable[[], list[LogRecord]]) -> None:
        with self._sound():
            self._write_share(known, change())

    def _write_share(self, known: KnownGroup, records: Sequence[LogRecord]) -> None:
        """Write what a group has decided, and begin what follows from it."""
        if records and known.writes is not None:
            known.writes.write(records)
        if known.share_work is not None:
            known.share_work.begin_if_needed()
        self._set_timer(known)

    def _carry_out_expiry(self, known: KnownGroup) -> None:
        group = known.group
        if isinstance(group, ShareGroup):
            self._write_share(known, group.expire(self._clock.now_ms()))
        else:
            super()._carry_out_expiry(known)

    def _remove_members(
        self, known: KnownGroup, group: ShareGroup, ids: Iterable[str]
    ) -> list[int]:
        """Remove members that an administrator names; return an error code for each."""
        codes: list[int] = []
        for member_id in ids:
            try:
                self._change_share(known, partial(group.leave, member_id))
                codes.append(errors_pb2.NONE)
            except KafkaError as error:
                codes.append(error.code)
        return codes
