"""The consumer groups (KIP-848) of one partition of __consumer_offsets."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer import consumer_log_format
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_member import LEAVING_EPOCH
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
)
from quorate.broker.coordinator.groups.consumer_group_work import (
    ConsumerGroupWork,
    VisibleTopics,
)
from quorate.broker.coordinator.groups.group_shard_basis import ShardDependencies
from quorate.broker.coordinator.groups.group_writes import GroupWrites
from quorate.broker.coordinator.groups.known_groups import Group, KnownGroup
from quorate.broker.coordinator.groups.state import group_log_format
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.group_effects import NOBODY, Leaver
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate_proto.v1 import errors_pb2


class ConsumerGroupShard(ShardDependencies):
    """The part of a shard that serves consumer groups."""

    # -- heartbeats ------------------------------------------------------------------------------

    async def consumer_heartbeat(
        self, group_id: str, request: HeartbeatRequest, visible: VisibleTopics
    ) -> HeartbeatAnswer:
        """Take a heartbeat; return when what it changes is in the log.

        A heartbeat that changes what members subscribe to waits for the target assignment that
        takes this into account, so that a member that joins gets partitions at once. All others are
        answered from what there is. ``visible`` has the rights of the client.

        Raises:
            KafkaError: the member is refused, or must join again.
        """
        if request.leaves:
            return await self._consumer_leaves(group_id, request)
        known, group, work = self._consumer_group(group_id, joins=request.joins)
        with self._sound():
            subscribed = group.subscribe(request, self._clock.now_ms())
            seen = subscribed.member.current
            self._register(known)
            self._write(known, subscribed.records)
        regex = subscribed.member.metadata.topic_regex
        epoch = subscribed.group_epoch
        if regex and regex not in group.regexes:
            await work.until_resolved(regex, visible)
            epoch = group.epoch
        elif regex:
            work.heard_of(visible)
        if epoch is not None:
            await work.until_assigned(epoch)
        with self._sound():
            answer, records = group.reconcile(
                subscribed.member,
                request,
                seen,
                self._clock.now_ms(),
                has_changed=subscribed.has_changed,
            )
            self._write(known, records)
        await self._until_written(known)
        return answer

    async def _consumer_leaves(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        known, group, _ = self._consumer_group(group_id, joins=False)
        with self._sound():
            self._write(known, group.leave(request))
        await self._until_written(known)
        return HeartbeatAnswer(request.member_id, request.member_epoch)

    def _remove_consumers(self, known: KnownGroup, leavers: Sequence[Leaver]) -> list[int]:
        """Remove members that an administrator names; return an error code for each."""
        group = known.group
        assert isinstance(group, ConsumerGroup)
        codes: list[int] = []
        for leaver in leavers:
            member_id = leaver.member_id
            if leaver.instance_id is not None and member_id == NOBODY:
                static = group.members.static(leaver.instance_id)
                member_id = NOBODY if static is None else static.member_id
            request = HeartbeatRequest(member_id, LEAVING_EPOCH, "", "", leaver.instance_id)
            try:
                with self._sound():
                    self._write(known, group.leave(request))
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(errors_pb2.NONE)
        return codes

    # -- groups ----------------------------------------------------------------------------------

    def _consumer_group(
        self, group_id: str, *, joins: bool
    ) -> tuple[KnownGroup, ConsumerGroup, ConsumerGroupWork]:
        """Return the group; a member that joins may find none, or an empty classic group.

        ``_register`` follows once the member is accepted.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        known = self._groups.get(group_id)
        if known is not None and isinstance(known.group, ConsumerGroup) and known.work is not None:
            return known, known.group, known.work
        if not joins or (known is not None and not known.group.is_empty):
            what = "has no members" if known is None else "is a classic group with members"
            raise KafkaError(errors_pb2.GROUP_ID_NOT_FOUND, f"group {group_id!r} {what}")
        parts = self._consumer_parts
        group = ConsumerGroup(group_id, parts.limits, parts.topics)
        new = KnownGroup(group)
        if known is not None:
            new.offsets = known.offsets
        return new, group, self._start(new, group)

    def _register(self, known: KnownGroup) -> None:
        """Take in a group that has its first member, perhaps in the place of a classic one."""
        group_id = known.group.group_id
        former = self._groups.get(group_id)
        if former is known:
            return
        self._groups[group_id] = known
        if former is not None:
            former.close()
            self._write(known, group_tombstones(former.group))

    def _as_classic(self, known: KnownGroup) -> ClassicGroup | None:
        """Return the classic group, or None if members use the consumer protocol. An empty consumer
        group becomes a classic one."""
        group = known.group
        if isinstance(group, ClassicGroup):
            return group
        if not group.is_empty:
            return None
        self._write(known, group_tombstones(group))
        known.close()
        known.writes = known.work = None
        known.group = classic = ClassicGroup(group.group_id, self._limits)
        known.touch(self._clock.wall_ms())
        return classic

    def _begin(self, known: KnownGroup) -> None:
        if isinstance(known.group, ConsumerGroup):
            self._start(known, known.group)
            with self._sound():
                self._write(known, known.group.topics_changed())

    def _start(self, known: KnownGroup, group: ConsumerGroup) -> ConsumerGroupWork:
        known.writes = GroupWrites(self._appends)
        known.work = ConsumerGroupWork(
            group, self._consumer_parts, self._clock, partial(self._change, known)
        )
        return known.work

    async def topics_changed(self, names: Collection[str]) -> None:
        """Tell the groups of topics that were created, deleted or have grown."""
        async for known in self._consumer_parts.turns.through(tuple(self._groups.values())):
            group = known.group
            if not isinstance(group, ConsumerGroup) or known.work is None or self._is_over:
                continue
            known.work.refresh_soon()
            if not group.subscribes_to(names):
                continue
            self._change(known, group.topics_changed)

    # -- carrying out ----------------------------------------------------------------------------

    def _change(self, known: KnownGroup, change: Callable[[], list[LogRecord]]) -> None:
        with self._sound():
            self._write(known, change())

    def _write(self, known: KnownGroup, records: Sequence[LogRecord]) -> None:
        """Write what a group has decided, and begin what follows from it."""
        if records and known.writes is not None:
            known.writes.write(records)
        if known.work is not None:
            known.work.assign_if_needed()
        self._set_timer(known)

    async def _until_written(self, known: KnownGroup) -> None:
        if known.writes is not None:
            await known.writes.until_written()
        if self._is_over:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, f"{self.name} is led elsewhere")

    def _carry_out_expiry(self, known: KnownGroup) -> None:
        group = known.group
        if isinstance(group, ConsumerGroup):
            self._write(known, group.expire(self._clock.now_ms()))
        else:
            super()._carry_out_expiry(known)


def group_tombstones(group: Group) -> list[LogRecord]:
    """Return the records that remove a group without members; its offsets stay."""
    if isinstance(group, ConsumerGroup):
        return consumer_log_format.group_tombstones(group.group_id)
    return [LogRecord(group_log_format.encode_group_key(group.group_id), None)]
