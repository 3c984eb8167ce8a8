"""Consumers of one group, and the world they live in: what they were told, and when."""

from collections.abc import Iterable

from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits, GroupState
from quorate.broker.coordinator.groups.state.group_effects import (
    GroupEffect,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Persist,
    Reply,
    SyncAnswer,
    SyncRequest,
    Token,
)

RANGE = (("range", b"subscription"),)
LIMITS = GroupLimits(max_members=1000, initial_delay_ms=0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class World:
    """One group, its clock, and every answer by the token of its request."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.now_ms = 1_000
        self.limits = limits
        self.group = ClassicGroup("orders", limits)
        self.answers: dict[Token, JoinAnswer | SyncAnswer] = {}
        self.unwritten: list[int] = []
        """Attempts that have not been reported yet."""
        self._token = 0
        self._ids = 0

    def carry_out(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, answer):
                    assert token not in self.answers, "a request is answered once"
                    self.answers[token] = answer
                case Persist(attempt):
                    self.unwritten.append(attempt)

    def write(self, error_code: int = 0) -> None:
        """The log has taken, or refused, all that was asked of it."""
        for attempt in self.unwritten[:]:
            self.unwritten.remove(attempt)
            self.carry_out(self.group.persisted(attempt, error_code, self.now_ms))

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        needs_known_id: bool = False,
        can_skip_assignment: bool = False,
        protocol_type: str = "consumer",
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> Token:
        self._ids += 1
        request = JoinRequest(
            self._next_token(),
            member_id,
            f"member-{self._ids}",
            instance_id,
            "client",
            "host",
            SESSION_MS,
            rebalance_timeout_ms,
            protocol_type,
            protocols,
            needs_known_id,
            can_skip_assignment,
        )
        self.carry_out(self.group.join(request, self.now_ms))
        return request.token

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        instance_id: str | None = None,
        protocol_name: str | None = None,
    ) -> Token:
        generation = self.group.generation_id if generation_id is None else generation_id
        request = SyncRequest(
            self._next_token(),
            member_id,
            instance_id,
            generation,
            None,
            protocol_name,
            tuple((assignments or {}).items()),
        )
        self.carry_out(self.group.sync(request, self.now_ms))
        return request.token

    def heartbeat(self, member_id: str, instance_id: str | None = None) -> int:
        generation = self.group.generation_id
        return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)

    def leave(self, *leavers: Leaver) -> list[int]:
        codes, effects = self.group.leave(leavers, self.now_ms)
        self.carry_out(effects)
        return codes

    def pass_ms(self, duration_ms: int) -> None:
        """Time passes, and the group is told at every moment that it asked for."""
        until_ms = self.now_ms + duration_ms
        while self.group.next_deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, self.group.next_deadline_ms)
            self.carry_out(self.group.expire(self.now_ms))
            assert self.group.next_deadline_ms > self.now_ms, "what is over is over"
        self.now_ms = until_ms

    def joined(self, token: Token) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, token: Token) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def stable(self, count: int, *, static: bool = False) -> list[str]:
        """That many members, agreed; their ids, the leader first."""
        for number in range(count):
            self.join(instance_id=f"instance-{number}" if static else None)
        for member in [each for each in self.group.members if each.joining is None]:
            if self.group.state is GroupState.PREPARING_REBALANCE:
                self.join(member.member_id, instance_id=member.instance_id)
        members = [member.member_id for member in self.group.members]
        assert self.group.state is GroupState.COMPLETING_REBALANCE
        members.sort(key=lambda member_id: member_id != self.group.members.leader_id)
        self.assign(members, static=static)
        return members

    def state(self) -> GroupState:
        return self.group.state

    def instance(self, member_id: str) -> str:
        """The instance id of a static member."""
        member = self.group.members.get(member_id)
        assert member is not None
        assert member.instance_id is not None
        return member.instance_id

    def assign(self, members: list[str], *, static: bool = False) -> None:
        """The leader, who comes first, brings everybody's assignment, and it is written."""
        assignments = {member_id: f"of {member_id}".encode() for member_id in members}
        for member_id in members:
            member = self.group.members.get(member_id)
            assert member is not None
            self.sync(member_id, assignments, instance_id=member.instance_id if static else None)
            assignments = {}
        self.write()
        assert self.group.state is GroupState.STABLE

    def _next_token(self) -> Token:
        self._token += 1
        return self._token
