"""The members of the classic protocol in a consumer group (KIP-848).

The group is one as always: it has epochs, and the broker assigns. To a member of the classic
protocol its member epoch is the generation. It joins, and is answered with its epoch at once; it
syncs, and gets what it has; it heartbeats, and is told to join again when there is something else
for it. With each join it says which partitions it has, as the others do with each heartbeat.
"""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    NEVER_MS,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatRequest,
    check_heartbeat,
)
from quorate.broker.coordinator.groups.consumer.targeting import Targeting
from quorate.broker.coordinator.groups.state.embedded_protocol import (
    CONSUMER,
    NamedPartitions,
    Subscription,
    read_subscription,
    write_assignment,
)
from quorate.broker.coordinator.groups.state.group_effects import (
    NOBODY,
    OK,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from quorate.broker.coordinator.shards.coordinator_records import UnknownRecord
from quorate_proto.v1 import errors_pb2

PROTOCOLS_BYTES_MAX: Final = 512 << 10
"""The most bytes of a member's subscriptions for all its protocols together, which are one record
in the log."""


class ClassicMembers(Targeting):
    """The part of a group that serves members of the classic protocol."""

    def joining_of_classic(self, request: JoinRequest) -> HeartbeatRequest:
        """Return a join as the heartbeat that says the same.

        Raises:
            KafkaError: the member is refused, or, with MEMBER_ID_REQUIRED, is to join again under
                the id ``new_member_id`` (KIP-394).
        """
        known = self.members.get(request.member_id)
        if request.instance_id is not None:
            known = self.members.static(request.instance_id)
            if request.member_id != NOBODY:
                self.static_member(request.instance_id, request.member_id)
        subscription = self._subscription(request, known)
        if request.member_id == NOBODY and request.instance_id is None and request.needs_known_id:
            raise KafkaError(errors_pb2.MEMBER_ID_REQUIRED, "join again under the new member id")
        heartbeat = HeartbeatRequest(
            request.member_id or request.new_member_id,
            JOINING_EPOCH,
            request.client_id,
            request.client_host,
            request.instance_id,
            subscription.rack_id,
            request.rebalance_timeout_ms,
            subscription.topics,
            topic_regex="",
            claimed=self._partitions(subscription.owned),
            classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        check_heartbeat(heartbeat._replace(claimed={}), (), needs_member_id=True)
        return heartbeat

    def joined(self, member: ConsumerMember, now_ms: int) -> JoinAnswer:
        """Return the answer to a join, after which the member must ask for its assignment.

        No member is told that it leads, because the broker assigns.
        """
        self._must_act(member, now_ms)
        classic = member.metadata.classic
        name = None if classic is None else classic.protocol_name
        return JoinAnswer(OK, member.member_id, member.current.epoch, CONSUMER, name)

    def sync_of_classic(self, request: SyncRequest, now_ms: int) -> SyncAnswer:
        """Return what a member is to consume.

        Raises:
            KafkaError: the member is to join again, or does not exist.
        """
        member, classic = self._classic_member(
            request.member_id, request.instance_id, request.generation_id
        )
        asked, known = (request.protocol_type, request.protocol_name), classic.protocol_name
        if any(said not in (None, is_) for said, is_ in zip(asked, (CONSUMER, known), strict=True)):
            code = errors_pb2.INCONSISTENT_GROUP_PROTOCOL
            raise KafkaError(code, f"{asked}: member {member.member_id!r} has {CONSUMER}, {known}")
        current = member.current
        is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS
        if self.target_epoch > current.epoch and not is_revoking:
            self._ask_to_join(member, now_ms)
            raise KafkaError(errors_pb2.REBALANCE_IN_PROGRESS, "join again")
        self._set_session(member, now_ms)
        member.act_by(NEVER_MS)
        topics = self._topics.topic_name
        named = {name: own for topic, own in current.assigned.items() if (name := topics(topic))}
        version = read_subscription(classic.protocols[0][1]).version
        return SyncAnswer(OK, CONSUMER, known, write_assignment(version, named))

    def heartbeat_of_classic(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Take a heartbeat; return a Kafka error code. REBALANCE_IN_PROGRESS asks the member to
        join again, because there is something for it to give up or to get.

        Raises:
            KafkaError: the member does not exist, or is in another epoch.
        """
        member, _ = self._classic_member(member_id, instance_id, generation_id)
        self._set_session(member, now_ms)
        if not self._has_news_for(member):
            return OK
        self._ask_to_join(member, now_ms)
        return errors_pb2.REBALANCE_IN_PROGRESS

    def _has_news_for(self, member: ConsumerMember) -> bool:
        current = member.current
        if current.epoch < self.target_epoch:
            return True
        match current.state:
            case MemberState.UNREVOKED_PARTITIONS:
                return True
            case MemberState.UNRELEASED_PARTITIONS:
                return not self._waits_for_others(member)
            case _:
                return False

    def _waits_for_others(self, member: ConsumerMember) -> bool:
        owner, free = self.members.owner, (None, member.member_id)
        target = self.target_of(member.member_id)
        return any(owner(topic, p) not in free for topic, own in target.items() for p in own)

    def _ask_to_join(self, member: ConsumerMember, now_ms: int) -> None:
        """Give the member its rebalance timeout to join again, from when it was first told."""
        if member.rebalance_deadline_ms == NEVER_MS:
            self._must_act(member, now_ms)

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ConsumerMember, ClassicMetadata]:
        """Return a member of the classic protocol that is in that generation.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        if instance_id is not None:
            member: ConsumerMember | None = self.static_member(instance_id, member_id)
        else:
            member = self.members.get(member_id)
        if member is None or (classic := member.metadata.classic) is None:
            raise self._unknown(f"member {member_id!r} of the classic protocol")
        if generation_id != member.current.epoch:
            raise KafkaError(
                errors_pb2.ILLEGAL_GENERATION,
                f"member {member_id!r} is in generation {generation_id}, and should be in "
                f"{member.current.epoch}: join again",
            )
        return member, classic

    def _subscription(self, request: JoinRequest, known: ConsumerMember | None) -> Subscription:
        """Return what a member subscribes to, by the protocol that it prefers.

        Raises:
            KafkaError: INCONSISTENT_GROUP_PROTOCOL, INVALID_REQUEST.
        """
        names = [name for name, _ in request.protocols]
        is_consumer = request.protocol_type == CONSUMER
        if not is_consumer or not self.members.supports_any(names, without=known):
            raise KafkaError(
                errors_pb2.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id!r} is of consumers, and not all of its members of the "
                f"classic protocol support one of {names}",
            )
        size = sum(len(metadata) for _, metadata in request.protocols)
        if size > PROTOCOLS_BYTES_MAX:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"subscriptions of {size} bytes: at most {PROTOCOLS_BYTES_MAX}",
            )
        try:
            return read_subscription(request.protocols[0][1])
        except UnknownRecord as error:
            message = f"the subscription for {names[0]!r} is malformed: {error}"
            raise KafkaError(errors_pb2.INCONSISTENT_GROUP_PROTOCOL, message) from error

    def _partitions(self, named: NamedPartitions) -> Partitions:
        """Return partitions by the ids of their topics; those of unknown topics are left out."""
        return {
            topic.topic_id: own
            for name, own in named.items()
            if (topic := self._topics.topic(name)) is not None
        }
