"""The data of a group that all its operations share: state, members, generation and deadlines."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from quorate.broker.coordinator.groups.state.group_effects import (
    GroupEffect,
    Persist,
    Reply,
    syncing_failed,
)
from quorate.broker.coordinator.groups.state.members import NEVER_MS, Member, Members
from quorate.common.invariants import BrokenInvariant
from quorate_proto.v1 import errors_pb2

_MEMBERS_PER_MS: Final = 100
"""A large group checks all its members at most once in a number of milliseconds, one for each 100
members. 10,000 members that die together have 10,000 deadlines, and one check of them all takes a
millisecond."""


class GroupState(StrEnum):
    """The states of a group, under the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class GroupLimits(NamedTuple):
    """The limits of a group.

    ``initial_delay_ms`` is the time that the first rebalance of an empty group waits for more
    members.
    """

    max_members: int
    initial_delay_ms: int


LEGAL_BEFORE: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
}
"""The states from which a group may come to a state."""


class _Writing(NamedTuple):
    """A write to the log: an assignment, or, with ``reply``, a static member that came back."""

    generation_id: int
    reply: Reply | None


class GroupStateBase:
    """The state of one group; ``Joining`` and ``ClassicGroup`` add the operations."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.members = Members()
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._limits = limits
        self._join_deadline_ms = NEVER_MS
        """The time at which PREPARING_REBALANCE ends, even if members have not joined."""
        self._may_extend_until_ms = 0
        """The first rebalance of an empty group is extended while members join, but not beyond this
        time."""
        self._has_new_member = False
        self._sync_deadline_ms = NEVER_MS
        self._unsynced: set[str] = set()
        """The members of this generation that have not asked for their assignment yet."""
        self._attempt = 0
        self._writing: dict[int, _Writing] = {}
        self.next_deadline_ms = NEVER_MS
        """The time before which ``expire`` has nothing to do. It may be too early, and too late by
        one millisecond, or by one for each ``_MEMBERS_PER_MS`` members."""

    def restore(
        self,
        members: Iterable[Member],
        now_ms: int,
        *,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str,
    ) -> None:
        """Take the state that the log has; it is not known which members are still alive."""
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.generation_id = generation_id
        for member in members:
            self.members.add(member)
            self._set_deadline(member, now_ms + member.session_timeout_ms)
        self.members.restore_leader(leader_id)
        if len(self.members):
            self.state = GroupState.STABLE

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members, so that it may be deleted."""
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Return whether the group has no members, and nobody is about to become one."""
        return self.is_empty and not self.members.pending

    def _enter(self, state: GroupState, generation_id: int) -> None:
        """Come to another state, in the present generation or the next.

        Raises:
            BrokenInvariant: the group may not come there from its state and generation.
        """
        if self.state not in LEGAL_BEFORE[state] or generation_id < self.generation_id:
            raise BrokenInvariant(
                f"group {self.group_id}",
                "states follow their order, and generations never fall",
                state=state.name,
                generation=generation_id,
                before=(self.state.name, self.generation_id),
            )
        self.state, self.generation_id = state, generation_id

    def _fail_syncing(self, error_code: int, now_ms: int) -> tuple[GroupEffect, ...]:
        failed = []
        for member in self.members:
            if member.syncing is not None:
                failed.append(syncing_failed(member.syncing, error_code))
                member.wait_for_sync(None)
                self._set_deadline(member, now_ms + member.session_timeout_ms)
        return tuple(failed)

    def _persist(self, reply: Reply | None) -> Persist:
        self._attempt += 1
        self._writing[self._attempt] = _Writing(self.generation_id, reply)
        return Persist(self._attempt)

    @property
    def _assignment_is_on_its_way(self) -> bool:
        """Return whether an assignment of this generation is being written.

        Members receive the assignment that is in the log, which is the first one that the leader
        sent.
        """
        return any(
            writing.reply is None and writing.generation_id == self.generation_id
            for writing in self._writing.values()
        )

    def _member(self, member_id: str, instance_id: str | None) -> Member | int:
        """Return the member, or the error code for a client that is not a member."""
        if instance_id is not None:
            static = self.members.static(instance_id)
            if static is None:
                return errors_pb2.UNKNOWN_MEMBER_ID
            return static if static.member_id == member_id else errors_pb2.FENCED_INSTANCE_ID
        return self.members.get(member_id) or errors_pb2.UNKNOWN_MEMBER_ID

    def _member_of_generation(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> Member | int:
        found = self._member(member_id, instance_id)
        if isinstance(found, Member) and generation_id != self.generation_id:
            return errors_pb2.ILLEGAL_GENERATION
        return found

    def _set_deadline(self, member: Member, deadline_ms: int) -> None:
        member.expire_at(deadline_ms)
        self._wake_by(deadline_ms)

    def _wake_by(self, deadline_ms: int) -> None:
        self.next_deadline_ms = min(self.next_deadline_ms, deadline_ms)

    def _look_ahead(self, now_ms: int) -> None:
        next_ms = min(
            self._join_deadline_ms,
            self._sync_deadline_ms,
            min(self.members.pending.values(), default=NEVER_MS),
            min((m.deadline_ms for m in self.members if m.is_new or not m.waits), default=NEVER_MS),
        )
        pause_ms = max(1, len(self.members) // _MEMBERS_PER_MS)
        self.next_deadline_ms = max(next_ms, now_ms + pause_ms)
