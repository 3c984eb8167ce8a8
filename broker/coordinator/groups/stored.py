"""A group as it is in the log: what a coordinator that takes over goes on from."""

from typing import NamedTuple

from broker.coordinator.groups.basis import GroupLimits, GroupState
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.members import Member


class StoredMember(NamedTuple):
    """``metadata``: its subscription under the group's protocol; the others are not kept."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """``changed_at_ms``: wall clock; offsets of a group without members expire after it."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    changed_at_ms: int
    members: tuple[StoredMember, ...]


def stored(group: ConsumerGroup, now_wall_ms: int) -> StoredGroup:
    """The group as it is now."""
    name = group.protocol_name or ""
    return StoredGroup(
        group.protocol_type or "",
        group.generation_id,
        group.protocol_name,
        group.members.leader_id or None,
        now_wall_ms,
        tuple(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(name),
                member.assignment,
            )
            for member in group.members
        ),
    )


def restored(group_id: str, kept: StoredGroup, limits: GroupLimits, now_ms: int) -> ConsumerGroup:
    """The group as it was; every member is given its full session timeout from ``now_ms`` on."""
    group = ConsumerGroup(group_id, limits)
    group.protocol_type = kept.protocol_type or None
    group.protocol_name = kept.protocol_name
    group.generation_id = kept.generation_id
    for each in kept.members:
        member = Member(
            member_id=each.member_id,
            instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_timeout_ms=each.session_timeout_ms,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            protocols=((kept.protocol_name or "", each.metadata),),
            assignment=each.assignment,
        )
        group.take_back(member, now_ms)
    group.members.leader_id = kept.leader_id or ""
    if kept.members:
        group.state = GroupState.STABLE
    return group
