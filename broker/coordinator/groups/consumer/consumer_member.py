"""A member of a consumer group: what it asks for, and which partitions it has."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from quorate.common.types import TopicId

NEVER_MS: Final = 1 << 62

JOINING_EPOCH: Final = 0
"""The member epoch with which a member joins, or joins again after it was fenced."""
LEAVING_EPOCH: Final = -1
"""The member epoch with which a member leaves."""
STATIC_LEAVING_EPOCH: Final = -2
"""The member epoch with which a static member leaves for a while; it keeps its partitions."""

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic, such as a target assignment. No topic has an empty set."""
Owned = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, each with the member epoch at which the member got it. No topic is empty."""

NOTHING_OWNED: Final[Owned] = MappingProxyType({})


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. The numbers are those of the log."""

    STABLE = 0
    """The member has what it is to have in its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions before it comes to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member is in its newest epoch, and waits for partitions that others still have."""


class ClassicMetadata(NamedTuple):
    """The part that a member of the classic protocol adds to ``MemberMetadata``, as the log has it.

    ``protocols`` has each assignment strategy with the member's subscription, the preferred one
    first.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that the member is told, which is the one that it prefers."""
        return self.protocols[0][0]

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of its protocols; a client may send the same one twice."""
        return frozenset(name for name, _ in self.protocols)


class MemberMetadata(NamedTuple):
    """The description that a member gives of itself, as the log has it.

    ``topic_regex`` is empty if the member subscribes to no regular expression, and
    ``server_assignor`` is None if it leaves the choice to the group. ``classic`` is None if the
    member uses the consumer protocol.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """The partitions of a member in its epoch, as the log has them.

    ``previous_epoch`` is what the member may still send if it missed the last answer. The member is
    the owner of ``revoking`` until it says that it has given these partitions up.
    """

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING_OWNED
    revoking: Owned = NOTHING_OWNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether the member has all of the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def partitions(self) -> Iterator[tuple[TopicId, int]]:
        """Yield the partitions that the member owns, also those that it has to give up."""
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    yield topic_id, partition

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """Return the epoch at which the member got a partition, or None if it does not own it."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def left_for_a_while(self) -> "CurrentAssignment":
        """Return the assignment of a static member that left: its partitions wait for whoever comes
        under its instance id."""
        return CurrentAssignment(
            STATIC_LEAVING_EPOCH,
            self.previous_epoch,
            self.state,
            {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()},
        )


class ConsumerMember:
    """One member. It is mutable, because its deadlines move with every heartbeat."""

    __slots__ = (
        "current",
        "member_id",
        "metadata",
        "rebalance_deadline_ms",
        "session_deadline_ms",
    )

    def __init__(
        self,
        member_id: str,
        metadata: MemberMetadata,
        current: CurrentAssignment,
    ) -> None:
        self.member_id = member_id
        self.metadata = metadata
        self.current = current
        self.session_deadline_ms = NEVER_MS
        """The time at which the member is removed if it stays silent."""
        self.rebalance_deadline_ms = NEVER_MS
        """The time at which the member is removed if it has not done its next step by then: given
        up partitions, or, with the classic protocol, joined again or asked for its assignment."""

    def expire_at(self, deadline_ms: int) -> None:
        """Set the time at which the member is removed if it stays silent."""
        self.session_deadline_ms = deadline_ms

    def act_by(self, deadline_ms: int) -> None:
        """Set the time by which the member must have done its next step."""
        self.rebalance_deadline_ms = deadline_ms

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol."""
        return self.metadata.classic is not None

    @property
    def deadline_ms(self) -> int:
        """The time at which the member is removed if nothing else happens."""
        return min(self.session_deadline_ms, self.rebalance_deadline_ms)
