"""The members of the classic protocol in the consumer groups of one partition of
__consumer_offsets."""

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.subscribing import Subscribed
from quorate.broker.coordinator.groups.consumer_group_shard import ConsumerGroupShard
from quorate.broker.coordinator.groups.consumer_group_work import ConsumerGroupWork
from quorate.broker.coordinator.groups.known_groups import KnownGroup
from quorate.broker.coordinator.groups.migration import MigrationPolicy
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.group_effects import (
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from quorate_proto.v1 import errors_pb2


class MixedGroupShard(ConsumerGroupShard):
    """The part of a shard that serves members of the classic protocol in consumer groups."""

    async def _join_classic(
        self, known: KnownGroup, group: ClassicGroup, request: JoinRequest
    ) -> JoinAnswer:
        """Let a member join a classic group; return when the rebalance is complete."""
        token, future = self._expect()
        with self._sound():
            effects = group.join(request._replace(token=token), self._clock.now_ms())
            self._carry_out(known, group, effects)
        answer = await self._answer(token, future)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def _join_consumers(self, known: KnownGroup, request: JoinRequest) -> JoinAnswer:
        """Let a member of the classic protocol join a consumer group.

        It waits for the target assignment that takes its subscription into account, and for no
        other member.
        """
        try:
            return await self._join_mixed(known, request)
        except KafkaError as error:
            needs_id = error.code == errors_pb2.MEMBER_ID_REQUIRED
            return JoinAnswer(error.code, request.new_member_id if needs_id else request.member_id)

    async def _join_mixed(self, known: KnownGroup, request: JoinRequest) -> JoinAnswer:
        group, work = known.group, known.work
        assert isinstance(group, ConsumerGroup)
        assert work is not None
        if self._consumer_parts.migration_policy is MigrationPolicy.DISABLED:
            raise KafkaError(
                errors_pb2.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!r} is a consumer group with members, and "
                "group.consumer.migration.policy is disabled",
            )
        heartbeat = group.joining_of_classic(request)
        with self._sound():
            subscribed = group.subscribe(heartbeat, self._clock.now_ms())
            seen = subscribed.member.current
            self._write(known, subscribed.records)
        classic = self._downgrade_if_due(known)
        if classic is not None:
            # The member took the place of the last one of the consumer protocol.
            again = request._replace(member_id=heartbeat.member_id)
            return await self._join_classic(known, classic, again)
        await self._until_target(known, group, work, subscribed)
        with self._sound():
            now_ms = self._clock.now_ms()
            _, records = group.reconcile(
                subscribed.member, heartbeat, seen, now_ms, has_changed=subscribed.has_changed
            )
            self._write(known, records)
        answer = group.joined(subscribed.member, self._clock.now_ms())
        self._set_timer(known)
        await self._until_written(known)
        group.require_present(subscribed.member)
        return answer

    async def _until_target(
        self,
        known: KnownGroup,
        group: ConsumerGroup,
        work: ConsumerGroupWork,
        subscribed: Subscribed,
    ) -> None:
        """Return when the target assignment takes the subscription of a member into account.

        Raises:
            KafkaError: REBALANCE_IN_PROGRESS, the group has become a classic one meanwhile.
        """
        try:
            if subscribed.group_epoch is not None:
                await work.until_assigned(subscribed.group_epoch)
        except KafkaError:
            if self._is_present(known, group):
                raise
        if not self._is_present(known, group):
            raise KafkaError(errors_pb2.REBALANCE_IN_PROGRESS, "the group changes its protocol")

    async def _sync_consumer(self, known: KnownGroup, request: SyncRequest) -> SyncAnswer:
        """Return the assignment of a member of the classic protocol when it is in the log."""
        group = known.group
        assert isinstance(group, ConsumerGroup)
        try:
            answer = group.sync_of_classic(request, self._clock.now_ms())
            self._set_timer(known)
            await self._until_written(known)
        except KafkaError as error:
            return SyncAnswer(error.code)
        return answer

    def _beat_of_consumer(
        self, known: KnownGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        """Take a heartbeat of a member of the classic protocol; return a Kafka error code."""
        group = known.group
        assert isinstance(group, ConsumerGroup)
        now_ms = self._clock.now_ms()
        try:
            code = group.heartbeat_of_classic(member_id, instance_id, generation_id, now_ms)
        except KafkaError as error:
            return error.code
        self._set_timer(known)
        return code
