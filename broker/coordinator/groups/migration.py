"""Makes the group that takes the place of one with members, in the other protocol (KIP-848).

Both functions are pure, and leave the group that they are given as it is.
"""

from enum import StrEnum
from typing import Final

from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupLimits
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.embedded_protocol import (
    CONSUMER,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.state.group_effects import NOBODY
from quorate.broker.coordinator.groups.state.members import Member
from quorate.broker.coordinator.shards.coordinator_records import UnknownRecord
from quorate.common.types import TopicId

_STANDARD_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""The assignors that clients bring with them. Where they add data to an assignment, as librdkafka's
cooperative-sticky does, it is a copy of partitions that the group knows: an assignor that lacks it
keeps less where it was, once."""


class MigrationPolicy(StrEnum):
    """Which groups with members change their protocol: the values of
    ``group.consumer.migration.policy``."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether classic groups become consumer groups when a member of that protocol joins."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether consumer groups become classic groups when the last member of the consumer
        protocol has left."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class NotMigratable(Exception):
    """The group cannot change its protocol. The message says why."""


def upgraded(
    classic: ClassicGroup, limits: ConsumerGroupLimits, topics: Topics, now_ms: int
) -> ConsumerGroup:
    """Return a consumer group with the members of a classic group, in its generation.

    Members that have not been told yet that they were accepted are left out: they join again.

    Raises:
        NotMigratable: the members are not consumers, or their assignor would lose data of its own.
    """
    if classic.protocol_type != CONSUMER:
        raise NotMigratable(f"its members are of the type {classic.protocol_type!r}")
    group = ConsumerGroup(classic.group_id, limits, topics)
    told = [member for member in classic.members if not member.is_new]
    if len(told) > limits.max_members:
        raise NotMigratable(
            f"it has {len(told)} members: {limits.max_members} at most (group.consumer.max.size)"
        )
    _Upgrade(classic, group, topics).take(told, now_ms)
    group.restore_epochs(classic.generation_id, 0, classic.generation_id)
    return group


class _Upgrade:
    """Gives each partition one owner, whatever the clients' assignor has made of it."""

    def __init__(self, classic: ClassicGroup, group: ConsumerGroup, topics: Topics) -> None:
        self._classic = classic
        self._group = group
        self._topics = topics
        self._taken: set[tuple[TopicId, int]] = set()

    def take(self, members: list[Member], now_ms: int) -> None:
        """Take all members into the group."""
        subscriptions = [_subscription(member, self._classic.protocol_name) for member in members]
        assigned = [
            self._untaken(_assigned(member, self._classic.protocol_name)) for member in members
        ]
        # What a member said that it had when it joined, and has not got again, it may still have.
        claimed = [self._untaken(subscription.owned) for subscription in subscriptions]
        for each in zip(members, subscriptions, assigned, claimed, strict=True):
            self._restore(*each, now_ms)

    def _untaken(self, named: NamedPartitions) -> Partitions:
        """Return the partitions that exist, and that no other member has; they are taken now."""
        untaken: dict[TopicId, frozenset[int]] = {}
        for name, own in named.items():
            topic = self._topics.topic(name)
            if topic is None:
                continue
            topic_id = topic.topic_id
            exist = {p for p in own if 0 <= p < topic.partition_count}
            free = frozenset(p for p in exist if (topic_id, p) not in self._taken)
            self._taken.update((topic_id, p) for p in free)
            if free:
                untaken[topic_id] = free
        return untaken

    def _restore(
        self,
        member: Member,
        subscription: Subscription,
        assigned: Partitions,
        claimed: Partitions,
        now_ms: int,
    ) -> None:
        epoch = self._classic.generation_id
        state = MemberState.UNREVOKED_PARTITIONS if claimed else MemberState.STABLE
        owned, revoking = (
            {topic_id: dict.fromkeys(own, epoch) for topic_id, own in partitions.items()}
            for partitions in (assigned, claimed)
        )
        metadata = MemberMetadata(
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            subscription.topics,
            "",
            member.rebalance_timeout_ms,
            None,
            ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        current = CurrentAssignment(epoch, epoch, state, owned, revoking)
        self._group.restore_member(ConsumerMember(member.member_id, metadata, current), now_ms)
        self._group.restore_target(member.member_id, assigned)


def _subscription(member: Member, protocol_name: str | None) -> Subscription:
    metadata = member.metadata(protocol_name or "") or member.protocols[0][1]
    try:
        return read_subscription(metadata)
    except UnknownRecord as error:
        raise NotMigratable(
            f"the subscription of member {member.member_id!r} is malformed: {error}"
        ) from error


def _assigned(member: Member, protocol_name: str | None) -> NamedPartitions:
    try:
        assignment = read_assignment(member.assignment)
    except UnknownRecord as error:
        raise NotMigratable(
            f"the assignment of member {member.member_id!r} is malformed: {error}"
        ) from error
    if assignment.user_data and protocol_name not in _STANDARD_ASSIGNORS:
        raise NotMigratable(
            f"the assignment of member {member.member_id!r} has data of the clients' assignor, "
            "which would be lost"
        )
    return assignment.partitions


def downgraded(
    group: ConsumerGroup, limits: GroupLimits, topics: Topics, now_ms: int
) -> ClassicGroup:
    """Return a classic group with the members of a consumer group, which all use that protocol.

    They are in the generation of the target assignment, with what they own, and have to join again,
    because their leader is to assign. Whoever is in an older epoch is told ILLEGAL_GENERATION.

    Raises:
        NotMigratable: there are too many members, or they have no protocol in common.
    """
    if len(group.members) > limits.max_members:
        raise NotMigratable(
            f"it has {len(group.members)} members: {limits.max_members} at most (group.max.size)"
        )
    classic = ClassicGroup(group.group_id, limits)
    classic.restore(
        [_downgraded_member(member, topics) for member in group.members],
        now_ms,
        generation_id=group.target_epoch,
        protocol_type=CONSUMER,
        protocol_name=None,
        leader_id=NOBODY,
    )
    if not classic.members.have_one_protocol:
        raise NotMigratable("its members have no protocol in common")
    classic.begin_without_leader(now_ms)
    return classic


def _downgraded_member(member: ConsumerMember, topics: Topics) -> Member:
    metadata = member.metadata
    assert metadata.classic is not None, "all members use the classic protocol"
    owned: dict[str, list[int]] = {}
    for topic_id, partition in member.current.partitions():
        name = topics.topic_name(topic_id)
        if name is not None:
            owned.setdefault(name, []).append(partition)
    version = read_subscription(metadata.classic.protocols[0][1]).version
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        session_timeout_ms=metadata.classic.session_timeout_ms,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        protocols=metadata.classic.protocols,
        assignment=write_assignment(version, owned),
    )
