"""``ClassicGroup``: the state machine of a group (Kafka's classic protocol).

    EMPTY ── join ──▶ PREPARING_REBALANCE ── all have joined, or the time is up ──▶
    COMPLETING_REBALANCE ── the leader's assignment is in the log ──▶ STABLE

A member that joins, leaves or changes its subscription later leads back to PREPARING_REBALANCE. The
following rules hold, in whatever order events arrive:

- A generation has one protocol that all of its members support, and one assignment. The assignment
  is in the log before any member receives it, so a coordinator that takes over gives the same one.
- A member learns of a generation only by the answer to its join, and it receives an assignment of
  its own generation only. So no two members own a partition in the same generation.
- A member that is silent for its session timeout is removed; one that waits for an answer is not
  silent.
"""

from collections.abc import Iterable

from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.coordinator.groups.state.group_effects import (
    NOBODY,
    NOTHING,
    OK,
    GroupEffect,
    Leaver,
    Reply,
    SyncAnswer,
    SyncRequest,
    joining_failed,
    syncing_failed,
)
from quorate.broker.coordinator.groups.state.joining import Joining
from quorate.broker.coordinator.groups.state.members import NEVER_MS, Member
from quorate_proto.v1 import errors_pb2


class ClassicGroup(Joining):
    """One group. Its methods are events; most return effects or a Kafka error code."""

    # -- changing the protocol -------------------------------------------------------------------

    def begin_without_leader(self, now_ms: int) -> None:
        """Ask all members to join again, because the group was of the consumer protocol before, and
        none of them has assigned yet. Nobody waits for an answer."""
        self.protocol_name = self.members.elect_protocol()
        self._begin_rebalance(now_ms)

    def dissolve(self) -> tuple[GroupEffect, ...]:
        """Ask everybody who waits to join again, because the group changes to the consumer
        protocol. This group is not used any more."""
        code = errors_pb2.REBALANCE_IN_PROGRESS
        effects = [
            joining_failed(written.reply.token, code)
            for written in self._writing.values()
            if written.reply is not None
        ]
        for member in self.members:
            if member.joining is not None:
                effects.append(joining_failed(member.joining, code, member.member_id))
            if member.syncing is not None:
                effects.append(syncing_failed(member.syncing, code))
        return tuple(effects)

    # -- the assignment --------------------------------------------------------------------------

    def sync(self, request: SyncRequest, now_ms: int) -> tuple[GroupEffect, ...]:
        """Return a member's assignment, as soon as the group leader has sent it."""
        found = self._member_of_generation(
            request.member_id, request.instance_id, request.generation_id
        )
        if isinstance(found, int):
            return (syncing_failed(request.token, found),)
        asked = (request.protocol_type, request.protocol_name)
        known = (self.protocol_type, self.protocol_name)
        if any(said not in (None, is_) for said, is_ in zip(asked, known, strict=True)):
            return (syncing_failed(request.token, errors_pb2.INCONSISTENT_GROUP_PROTOCOL),)
        if self.state is GroupState.PREPARING_REBALANCE:
            return (syncing_failed(request.token, errors_pb2.REBALANCE_IN_PROGRESS),)
        self._unsynced.discard(found.member_id)
        self._set_deadline(found, now_ms + found.session_timeout_ms)
        if self.state is GroupState.STABLE:
            return (Reply(request.token, self._assigned(found)),)
        effects: list[GroupEffect] = []
        if found.syncing is not None:
            effects.append(syncing_failed(found.syncing, errors_pb2.REBALANCE_IN_PROGRESS))
        found.wait_for_sync(request.token)
        if found is self.members.leader and not self._assignment_is_on_its_way:
            assignments = dict(request.assignments)
            for member in self.members:
                member.assign(assignments.get(member.member_id, b""))
            effects.append(self._persist(None))
        return tuple(effects)

    def persisted(self, attempt: int, error_code: int, now_ms: int) -> tuple[GroupEffect, ...]:
        """Continue after the write that ``Persist(attempt)`` asked for: it is committed, or it
        failed."""
        written = self._writing.pop(attempt)
        if written.reply is not None:
            if not error_code:
                return (written.reply,)
            return (joining_failed(written.reply.token, error_code),)
        current = (
            self.state is GroupState.COMPLETING_REBALANCE
            and written.generation_id == self.generation_id
        )
        if not current:
            return NOTHING
        if error_code:
            for member in self.members:
                member.assign(b"")
            return (*self._fail_syncing(error_code, now_ms), *self._rebalance(now_ms))
        self._enter(GroupState.STABLE, self.generation_id)
        replies = []
        for member in self.members:
            if member.syncing is not None:
                replies.append(Reply(member.syncing, self._assigned(member)))
                member.wait_for_sync(None)
                self._set_deadline(member, now_ms + member.session_timeout_ms)
        return tuple(replies)

    def _assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(OK, self.protocol_type, self.protocol_name, member.assignment)

    # -- being a member --------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Take a heartbeat; the error code tells the member what to do."""
        code = self._sign_of_life(member_id, instance_id, generation_id, now_ms)
        if code == OK and self.state is GroupState.PREPARING_REBALANCE:
            return errors_pb2.REBALANCE_IN_PROGRESS
        return code

    def check_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Check that offsets may be committed: by a member, or by any client while there are no
        members."""
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return OK
        code = self._sign_of_life(member_id, instance_id, generation_id, now_ms)
        if code == OK and self.state is GroupState.COMPLETING_REBALANCE:
            return errors_pb2.REBALANCE_IN_PROGRESS
        return code

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        """Check that offsets may be committed in a transaction (KIP-447).

        Old producers send no member id and are accepted, because their transactional id fences
        them. A producer that sends its generation may not know the next generation yet. The request
        does not extend a session, because a producer sends it.
        """
        if generation_id < 0 and (self.state is GroupState.EMPTY or not (member_id or instance_id)):
            return OK
        found = self._member_of_generation(member_id, instance_id, generation_id)
        return found if isinstance(found, int) else OK

    def _sign_of_life(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Extend the session of a member of this generation; otherwise return an error code."""
        found = self._member_of_generation(member_id, instance_id, generation_id)
        if isinstance(found, int):
            return found
        self._set_deadline(found, now_ms + found.session_timeout_ms)
        return OK

    def leave(
        self, leavers: Iterable[Leaver], now_ms: int
    ) -> tuple[list[int], tuple[GroupEffect, ...]]:
        """Remove members at once; return an error code for each, and effects."""
        codes: list[int] = []
        effects: list[GroupEffect] = []
        someone_left = False
        for leaver in leavers:
            if leaver.instance_id is None and leaver.member_id in self.members.pending:
                del self.members.pending[leaver.member_id]
                someone_left = True
                codes.append(OK)
                continue
            found = self._leaving(leaver)
            if isinstance(found, int):
                codes.append(found)
                continue
            effects += self._remove(found)
            someone_left = True
            codes.append(OK)
        if someone_left:
            effects += self._somebody_left(now_ms)
        return codes, tuple(effects)

    def _leaving(self, leaver: Leaver) -> Member | int:
        """Return the leaving member. Administrators name static members by instance id alone
        (KIP-345)."""
        if leaver.instance_id is not None and leaver.member_id == NOBODY:
            return self.members.static(leaver.instance_id) or errors_pb2.UNKNOWN_MEMBER_ID
        return self._member(leaver.member_id, leaver.instance_id)

    def expire(self, now_ms: int) -> tuple[GroupEffect, ...]:
        """Remove what has timed out. The shell calls this when ``next_deadline_ms`` is reached."""
        effects: list[GroupEffect] = []
        late_ids = [each for each, until_ms in self.members.pending.items() if until_ms <= now_ms]
        for member_id in late_ids:
            del self.members.pending[member_id]
        late = (each for each in self.members if each.deadline_ms <= now_ms)
        silent = {each.member_id: each for each in late if each.is_new or not each.waits}
        if self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = NEVER_MS
            unsynced = map(self.members.get, self._unsynced)
            silent.update((each.member_id, each) for each in unsynced if each is not None)
        for member in silent.values():
            effects += self._remove(member)
        if late_ids or silent:
            effects += self._somebody_left(now_ms)
        if self.state is GroupState.PREPARING_REBALANCE and self._join_deadline_ms <= now_ms:
            effects += self._join_time_is_up(now_ms)
        self._look_ahead(now_ms)
        return tuple(effects)

    def _remove(self, member: Member) -> list[GroupEffect]:
        """Remove a member, and answer the requests that it waits for."""
        gone = errors_pb2.UNKNOWN_MEMBER_ID
        effects: list[GroupEffect] = []
        if member.joining is not None:
            effects.append(joining_failed(member.joining, gone, member.member_id))
        if member.syncing is not None:
            effects.append(syncing_failed(member.syncing, gone))
            member.wait_for_sync(None)
        self._unsynced.discard(member.member_id)
        self.members.remove(member)
        return effects

    def _somebody_left(self, now_ms: int) -> tuple[GroupEffect, ...]:
        match self.state:
            case GroupState.EMPTY:
                return NOTHING
            case GroupState.PREPARING_REBALANCE:
                return self._complete_if_joined(now_ms)
            case _:
                return self._rebalance(now_ms)
