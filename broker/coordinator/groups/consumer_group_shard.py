"""The consumer groups (KIP-848) of one partition of __consumer_offsets."""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
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
from quorate.broker.coordinator.groups.known_groups import KnownGroup, group_tombstones
from quorate.broker.coordinator.groups.migration import NotMigratable, downgraded, upgraded
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.state import group_log_format
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.group_effects import NOBODY, Leaver
from quorate.broker.coordinator.groups.state.group_log_format import stored
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_MIGRATION_BYTES_MAX: Final = 1_000_000
"""The largest size of a group that changes to the consumer protocol while it has members. The log
gets it in one batch, so that a new coordinator finds all of it or none, and Kafka's topics take
batches of 1,048,588 bytes by default."""


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
        group.require_present(subscribed.member)
        return answer

    async def _consumer_leaves(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        known, group, _ = self._consumer_group(group_id, joins=False)
        with self._sound():
            self._write(known, group.leave(request))
        self._downgrade_if_due(known)
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
        self._downgrade_if_due(known)
        return codes

    # -- groups ----------------------------------------------------------------------------------

    def _consumer_group(
        self, group_id: str, *, joins: bool
    ) -> tuple[KnownGroup, ConsumerGroup, ConsumerGroupWork]:
        """Return the group; a member that joins may find none, or a classic group.

        ``_register`` follows once the member is accepted.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        known = self._groups.get(group_id)
        if known is not None and isinstance(known.group, ConsumerGroup) and known.work is not None:
            known.group.configure(self._consumer_parts.limits_of(group_id))
            return known, known.group, known.work
        is_share = known is not None and isinstance(known.group, ShareGroup)
        if not joins or is_share:
            what = "has no members"
            if known is not None:
                what = "is a share group" if is_share else "is a classic group"
            raise KafkaError(errors_pb2.GROUP_ID_NOT_FOUND, f"group {group_id!r} {what}")
        parts = self._consumer_parts
        if known is None:
            group = ConsumerGroup(group_id, parts.limits_of(group_id), parts.topics)
            new = KnownGroup(group)
        else:
            group = self._upgraded(known)
            new = KnownGroup(group, known.offsets, writes=known.writes)
        return new, group, self._start(new, group)

    def _upgraded(self, known: KnownGroup) -> ConsumerGroup:
        """Return the consumer group that a classic group becomes.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        classic, parts = known.group, self._consumer_parts
        assert isinstance(classic, ClassicGroup)
        limits = parts.limits_of(classic.group_id)
        if classic.is_empty:
            return ConsumerGroup(classic.group_id, limits, parts.topics)
        try:
            if not parts.migration_policy.upgrades:
                policy = parts.migration_policy
                raise NotMigratable(f"group.consumer.migration.policy is {policy.value}")
            return upgraded(classic, limits, parts.topics, self._clock.now_ms())
        except NotMigratable as error:
            raise _not_upgraded(classic, str(error)) from error

    def _register(self, known: KnownGroup) -> None:
        """Take in a group that has its first member, perhaps in the place of a classic one, whose
        members stay.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the classic group is too large; nothing has changed.
        """
        group = known.group
        former = self._groups.get(group.group_id)
        if former is known:
            return
        if former is not None and known.writes is not None and isinstance(group, ConsumerGroup):
            classic = former.group
            assert isinstance(classic, ClassicGroup)
            records = [*group_tombstones(classic), *group.all_records()]
            size = sum(record.size for record in records)
            if size > _MIGRATION_BYTES_MAX:
                reason = f"its records have {size} bytes: {_MIGRATION_BYTES_MAX} at most"
                raise _not_upgraded(classic, reason)
            self._carry_out(former, classic, classic.dissolve())
            former.close()
            known.writes.write_together(records)
            _log.info(
                "%s: group %s with %d members changes to the consumer protocol",
                self.name,
                group.group_id,
                len(classic.members),
            )
        self._groups[group.group_id] = known

    def _as_classic(self, known: KnownGroup) -> ClassicGroup | None:
        """Return the classic group, or None if it is a share group, or a consumer group with
        members. An empty consumer group becomes a classic one."""
        group = known.group
        if isinstance(group, ClassicGroup):
            return group
        if isinstance(group, ShareGroup) or not group.is_empty:
            return None
        classic = ClassicGroup(group.group_id, self._limits)
        self._become_classic(known, group, classic)
        return classic

    def _downgrade_if_due(self, known: KnownGroup) -> ClassicGroup | None:
        """Let a group become a classic one whose last member of the consumer protocol has left;
        return the classic group, or None if it is not due."""
        group, parts = known.group, self._consumer_parts
        if not isinstance(group, ConsumerGroup) or not group.members.all_classic:
            return None
        if not parts.migration_policy.downgrades:
            return None
        try:
            classic = downgraded(group, self._limits, parts.topics, self._clock.now_ms())
        except NotMigratable as error:
            message = "%s: group %s stays a consumer group: %s"
            _log.warning(message, self.name, group.group_id, error)
            return None
        self._become_classic(known, group, classic)
        self._set_timer(known)
        _log.info(
            "%s: group %s with %d members changes to the classic protocol",
            self.name,
            group.group_id,
            len(classic.members),
        )
        return classic

    def _become_classic(
        self, known: KnownGroup, group: ConsumerGroup, classic: ClassicGroup
    ) -> None:
        """Put a classic group in the place of a consumer group, in the log as well."""
        known.close()
        known.work = None
        known.group = classic
        known.touch(self._clock.wall_ms())
        records = group_tombstones(group)
        if len(classic.members):
            key = group_log_format.encode_group_key(classic.group_id)
            value = group_log_format.encode_group(stored(classic, known.changed_at_ms))
            records.append(LogRecord(key, value))
        if known.writes is not None:
            known.writes.write_together(records)

    def _begin(self, known: KnownGroup) -> None:
        if isinstance(known.group, ConsumerGroup):
            self._start(known, known.group)
            with self._sound():
                self._write(known, known.group.topics_changed())
            self._downgrade_if_due(known)

    def _start(self, known: KnownGroup, group: ConsumerGroup) -> ConsumerGroupWork:
        known.writes = known.writes or GroupWrites(self._appends)
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
        """Return when everything that the group has decided before is in the log.

        Raises:
            KafkaError: it is not, or may not be.
        """
        try:
            if known.writes is not None:
                await known.writes.until_written()
        except KafkaError as error:
            if error.code != errors_pb2.UNKNOWN_SERVER_ERROR:
                raise
            raise KafkaError(
                error.code,
                f"group {known.group.group_id!r}: the log does not take its records: "
                f"{error.message}. What one member has is one record: let more members share it, "
                "or raise message.max.bytes",
            ) from error
        if self._is_over:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, f"{self.name} is led elsewhere")

    def _carry_out_expiry(self, known: KnownGroup) -> None:
        group = known.group
        if isinstance(group, ConsumerGroup):
            self._write(known, group.expire(self._clock.now_ms()))
            self._downgrade_if_due(known)
        else:
            super()._carry_out_expiry(known)


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        errors_pb2.GROUP_ID_NOT_FOUND,
        f"group {group.group_id!r} is a classic group with members, and cannot change to the "
        f"consumer protocol: {reason}",
    )
