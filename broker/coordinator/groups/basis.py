"""What is known of a group, who is who in it, and until when."""

from enum import StrEnum
from typing import Final, NamedTuple

from broker.coordinator.groups.effects import Effect, Persist, Reply, syncing_failed
from broker.coordinator.groups.members import NEVER_MS, Member, Members
from quorate_proto.v1 import errors_pb2

_MEMBERS_PER_MS: Final = 100
"""A large group looks at all its members at most once in a millisecond per so many of them: 10,000
that die together have 10,000 deadlines, and each look at them all takes a millisecond, too."""


class GroupState(StrEnum):
    """By the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class GroupLimits(NamedTuple):
    """``initial_delay_ms``: how long a group that was empty waits for more members."""

    max_members: int
    initial_delay_ms: int


class _Writing(NamedTuple):
    """What is on its way to the log: an assignment, or ``reply`` to a member that came back."""

    generation_id: int
    reply: Reply | None


class GroupBasis:
    """State of one group; ``joining`` and ``group`` say what happens to it."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.members = Members()
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._limits = limits
        self._join_deadline_ms = NEVER_MS
        """PREPARING_REBALANCE ends then, whoever has not joined."""
        self._may_extend_until_ms = 0
        """The first rebalance of an empty group waits again while members come, but not longer."""
        self._has_new_member = False
        self._sync_deadline_ms = NEVER_MS
        self._unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self._attempt = 0
        self._writing: dict[int, _Writing] = {}
        self.next_deadline_ms = NEVER_MS
        """``expire`` has nothing to do before; perhaps too early, and too late by no more than a
        millisecond, or one per ``_MEMBERS_PER_MS``."""

    def take_back(self, member: Member, now_ms: int) -> None:
        """A member as the log has it: nobody knows yet whether it is still there."""
        self.members.add(member)
        self._set_deadline(member, now_ms + member.session_timeout_ms)

    def _fail_syncing(self, error_code: int, now_ms: int) -> tuple[Effect, ...]:
        failed = []
        for member in self.members:
            if member.syncing is not None:
                failed.append(syncing_failed(member.syncing, error_code))
                member.syncing = None
                self._set_deadline(member, now_ms + member.session_timeout_ms)
        return tuple(failed)

    def _persist(self, reply: Reply | None) -> Persist:
        self._attempt += 1
        self._writing[self._attempt] = _Writing(self.generation_id, reply)
        return Persist(self._attempt)

    @property
    def _assignment_is_on_its_way(self) -> bool:
        """What is in the log is what members are told: the first that the leader brought."""
        return any(
            writing.reply is None and writing.generation_id == self.generation_id
            for writing in self._writing.values()
        )

    def _member(self, member_id: str, instance_id: str | None) -> Member | int:
        """The member, or why it is none."""
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
        member.deadline_ms = deadline_ms
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
