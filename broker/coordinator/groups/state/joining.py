"""Joining and rebalancing: how a group gets from one generation to the next."""

from typing import Final

from quorate.broker.coordinator.groups.state.group_basis import GroupState, GroupStateBase
from quorate.broker.coordinator.groups.state.group_effects import (
    NOBODY,
    NOTHING,
    OK,
    GroupEffect,
    JoinAnswer,
    JoinRequest,
    Reply,
    Token,
    joining_failed,
    syncing_failed,
)
from quorate.broker.coordinator.groups.state.members import NEVER_MS, Member
from quorate_proto.v1 import errors_pb2

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""The longest time that a first join waits for its answer. Its client may be gone, and it sends no
heartbeats until it knows that it was accepted."""


class Joining(GroupStateBase):
    """The part of a group that accepts members and rebalances."""

    # -- joining ---------------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: int) -> tuple[GroupEffect, ...]:
        """Let a member take part in the next generation."""
        refusal = self._refusal_to_join(request)
        if refusal:
            return (joining_failed(request.token, refusal, request.member_id),)
        if request.member_id != NOBODY:
            return self._join_known(request, now_ms)
        static = self.members.static(request.instance_id)
        if static is not None:
            return self._come_back(static, request, now_ms)
        if request.instance_id is None and request.needs_known_id:
            return self._give_out_id(request, now_ms)
        return self._let_in(request, request.new_member_id, now_ms)

    def _refusal_to_join(self, request: JoinRequest) -> int:
        members = self.members
        known = members.get(request.member_id) or members.static(request.instance_id)
        is_stranger = known is None and request.member_id not in members.pending
        if is_stranger and len(members) + len(members.pending) >= self._limits.max_members:
            return errors_pb2.GROUP_MAX_SIZE_REACHED
        names = [name for name, _ in request.protocols]
        if not names or not request.protocol_type:
            return errors_pb2.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.EMPTY:
            return OK
        if request.protocol_type != self.protocol_type:
            return errors_pb2.INCONSISTENT_GROUP_PROTOCOL
        if not members.supports_any(names, without=known):
            return errors_pb2.INCONSISTENT_GROUP_PROTOCOL
        return OK

    def _give_out_id(self, request: JoinRequest, now_ms: int) -> tuple[GroupEffect, ...]:
        """Give the client a member id first, so that a lost answer leaves no member behind
        (KIP-394)."""
        until_ms = now_ms + request.session_timeout_ms
        self.members.pending[request.new_member_id] = until_ms
        self._wake_by(until_ms)
        code = errors_pb2.MEMBER_ID_REQUIRED
        return (joining_failed(request.token, code, request.new_member_id),)

    def _let_in(self, request: JoinRequest, member_id: str, now_ms: int) -> tuple[GroupEffect, ...]:
        member = Member.of(request, member_id)
        self.members.add(member)
        self._set_deadline(member, now_ms + NEW_MEMBER_TIMEOUT_MS)
        member_waits = self._wait_to_join(member, request.token)
        self._has_new_member = True
        if self.state is GroupState.EMPTY:
            self.protocol_type = request.protocol_type
        return (*member_waits, *self._rebalance(now_ms))

    def _join_known(self, request: JoinRequest, now_ms: int) -> tuple[GroupEffect, ...]:
        if request.instance_id is None and request.member_id in self.members.pending:
            return self._let_in(request, request.member_id, now_ms)
        found = self._member(request.member_id, request.instance_id)
        if isinstance(found, int):
            return (joining_failed(request.token, found, request.member_id),)
        if self._need_not_rebalance(found, request):
            self._set_deadline(found, now_ms + found.session_timeout_ms)
            return (Reply(request.token, self._joined(found)),)
        return (*self._renew(found, request), *self._rebalance(now_ms))

    def _need_not_rebalance(self, member: Member, request: JoinRequest) -> bool:
        """Return whether a join repeats the present subscription, so that it only needs its answer
        again.

        A group leader that joins a stable group asks for a new assignment.
        """
        if member.protocols != request.protocols:
            return False
        if self.state is GroupState.COMPLETING_REBALANCE:
            return True
        return self.state is GroupState.STABLE and member is not self.members.leader

    def _come_back(
        self, member: Member, request: JoinRequest, now_ms: int
    ) -> tuple[GroupEffect, ...]:
        """Replace a static member whose process has restarted: fence the former process, keep its
        place."""
        fenced = errors_pb2.FENCED_INSTANCE_ID
        effects: list[GroupEffect] = []
        if member.joining is not None:
            effects.append(joining_failed(member.joining, fenced, member.member_id))
            self.members.stop_joining(member)
        if member.syncing is not None:
            effects.append(syncing_failed(member.syncing, fenced))
            member.wait_for_sync(None)
        former_leader_id = self.members.leader_id
        if member.member_id in self._unsynced:
            self._unsynced ^= {member.member_id, request.new_member_id}
        self.members.rename(member, request.new_member_id)
        if self.state is not GroupState.STABLE:
            return (*effects, *self._renew(member, request), *self._rebalance(now_ms))
        self.members.update(member, request)
        self._set_deadline(member, now_ms + member.session_timeout_ms)
        if self.members.elect_protocol() != self.protocol_name:
            effects += self._wait_to_join(member, request.token)
            return (*effects, *self._rebalance(now_ms))
        answer = self._joined(member)
        if member is self.members.leader:
            # The group leader must not assign again. An old client only learns that another member
            # leads; a newer one receives the flag (KIP-814).
            answer = (
                answer._replace(skip_assignment=True)
                if request.can_skip_assignment
                else answer._replace(leader_id=former_leader_id, members=())
            )
        return (*effects, self._persist(Reply(request.token, answer)))

    def _renew(self, member: Member, request: JoinRequest) -> tuple[GroupEffect, ...]:
        self.members.update(member, request)
        return self._wait_to_join(member, request.token)

    def _wait_to_join(self, member: Member, token: Token) -> tuple[GroupEffect, ...]:
        """Let a member wait for the end of the rebalance; an earlier join of it is answered with an
        error."""
        former = member.joining
        self.members.start_joining(member, token)
        if former is None:
            return NOTHING
        code = errors_pb2.REBALANCE_IN_PROGRESS
        return (joining_failed(former, code, member.member_id),)

    def _rebalance(self, now_ms: int) -> tuple[GroupEffect, ...]:
        """Start a rebalance, unless one is in progress; complete it if all members have joined."""
        effects: tuple[GroupEffect, ...] = ()
        if self.state is not GroupState.PREPARING_REBALANCE:
            effects = self._begin_rebalance(now_ms)
        return (*effects, *self._complete_if_joined(now_ms))

    def _begin_rebalance(self, now_ms: int) -> tuple[GroupEffect, ...]:
        effects = self._fail_syncing(errors_pb2.REBALANCE_IN_PROGRESS, now_ms)
        timeout_ms = self.members.rebalance_timeout_ms
        self._may_extend_until_ms = 0
        if self.state is GroupState.EMPTY:
            self._may_extend_until_ms = now_ms + timeout_ms
            timeout_ms = min(timeout_ms, self._limits.initial_delay_ms)
            self._has_new_member = False
        self._join_deadline_ms = now_ms + timeout_ms
        self._sync_deadline_ms = NEVER_MS
        self._unsynced.clear()
        self._wake_by(self._join_deadline_ms)
        self._enter(GroupState.PREPARING_REBALANCE, self.generation_id)
        return effects

    def _complete_if_joined(self, now_ms: int) -> tuple[GroupEffect, ...]:
        waits_for_more = now_ms < self._may_extend_until_ms and now_ms < self._join_deadline_ms
        if self.members.all_joining and not waits_for_more:
            return self._complete_join(now_ms)
        return NOTHING

    def _join_time_is_up(self, now_ms: int) -> tuple[GroupEffect, ...]:
        if self._has_new_member and now_ms < self._may_extend_until_ms:
            self._has_new_member = False
            delay_ms = min(self._limits.initial_delay_ms, self._may_extend_until_ms - now_ms)
            self._join_deadline_ms = now_ms + delay_ms
            return NOTHING
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> tuple[GroupEffect, ...]:
        """Start a generation of the members that have joined, and of all static members."""
        members = self.members
        for member in [each for each in members if each.joining is None and not each.is_static]:
            members.remove(member)
        if not len(members):
            return self._become_empty()
        members.elect_joined_leader()
        leader = members.leader
        if leader is None or leader.joining is None:
            # All members are static, and none has come back: their sessions will expire, or one
            # will join.
            self._join_deadline_ms = now_ms + members.rebalance_timeout_ms
            self._wake_by(self._join_deadline_ms)
            return NOTHING
        self._enter(GroupState.COMPLETING_REBALANCE, self.generation_id + 1)
        self.protocol_name = members.elect_protocol()
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = now_ms + members.rebalance_timeout_ms
        self._wake_by(self._sync_deadline_ms)
        self._unsynced = {member.member_id for member in members}
        replies = []
        for member in members:
            member.accepted()
            self._set_deadline(member, now_ms + member.session_timeout_ms)
            if member.joining is not None:
                replies.append(Reply(member.joining, self._joined(member)))
                members.stop_joining(member)
        return tuple(replies)

    def _become_empty(self) -> tuple[GroupEffect, ...]:
        self._enter(GroupState.EMPTY, self.generation_id + 1)
        self.protocol_name = None
        self._join_deadline_ms = self._sync_deadline_ms = NEVER_MS
        self._unsynced.clear()
        return (self._persist(None),)

    def _joined(self, member: Member) -> JoinAnswer:
        """Return the answer to the join of a member of the present generation."""
        name = self.protocol_name or ""
        leads = member is self.members.leader
        return JoinAnswer(
            OK,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            name,
            self.members.leader_id,
            members=self.members.as_leader_sees(name) if leads else (),
        )
