"""Membership changes of the quorum, at the leader: one at a time, each a committed voter set.

A new voter begins as an observer, which receives the log and does not count; it gets its vote once
it has caught up. Every step is committed before the next one, so the next leader can continue where
this one stopped: ``add_voter`` called again does so.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

import msgspec

from quorate.common.types import Endpoint, MetadataOffset
from quorate.metadata_log.records import QuorumVoter, QuorumVoterSet, ResultCode
from quorate.quorum.raft.leadership import TransferNotYet, TransferRefused
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.voter.voter import NotLeader, Voter
from quorate.quorum.voter.voter_status import quorum_status
from quorate_proto.v1 import quorum_pb2 as pb

log = logging.getLogger(__name__)

CAUGHT_UP_LAG: Final = 1_000
"""A number of entries: what a leader under load appends in some hundredths of a second."""

HEARD_MS: Final = 2_000
"""The leader does not count on a voter that did not answer for longer than this."""

_PROGRESS_EVERY_S: Final = 0.2
_LOOK_EVERY_S: Final = 0.05


class ChangeRefused(Exception):
    """The quorum stays as it is; the message says why and what to do."""


class ChangeNotYet(ChangeRefused):
    """The change is refused as things are. That may pass by itself, so trying again for a while is
    worth it.
    """


class NoSuchMember(ChangeRefused):
    """The member to be removed does not exist: perhaps an earlier call, whose answer was lost,
    removed it.
    """


class VoterChanges:
    """Makes the changes. Use all methods at the leader, on the event loop."""

    def __init__(self, voter: Voter) -> None:
        self._voter = voter
        self._under_way = ""

    # -- adding ----------------------------------------------------------------------------------

    async def add_voter(self, new: QuorumVoter) -> AsyncGenerator[pb.AddVoterProgress]:
        """Make a voter of ``new``; end when it is one, and continue for as long as that takes.

        Raises:
            ChangeRefused: its id or address is taken.
            ChangeNotYet: another change is under way.
            NotLeader, OutcomeLost: go on at the next leader.
        """
        with self._alone(f"adding voter {new.voter_id}"):
            if not self._is_member(new):
                observer = msgspec.structs.replace(new, observer=True)
                await self._replace((*self._members(), observer))
            while True:
                state = await self._state_of(new.voter_id)
                if not state.observer:
                    yield _progress(pb.ADD_VOTER_DONE, state, "it is a voter")
                    return
                if _is_caught_up(state):
                    try:
                        await self._promote(state)
                    except ChangeNotYet as not_yet:
                        yield _progress(pb.ADD_VOTER_CATCHING_UP, state, str(not_yet))
                        await asyncio.sleep(_PROGRESS_EVERY_S)
                    continue
                if state.connected:
                    yield _progress(pb.ADD_VOTER_CATCHING_UP, state, f"{state.lag} entries behind")
                else:
                    waiting = f"waiting for voter {state.voter_id} to connect; it must run and "
                    where = f"reach the leader from {state.raft_address}"
                    yield _progress(pb.ADD_VOTER_CONNECTING, state, waiting + where)
                await asyncio.sleep(_PROGRESS_EVERY_S)

    def _is_member(self, new: QuorumVoter) -> bool:
        """Return whether ``new`` is in the set already, as it is to be.

        Raises:
            ChangeRefused: something of it belongs to another one.
        """
        for member in self._members():
            if member.voter_id == new.voter_id:
                if (member.raft, member.grpc) == (new.raft, new.grpc):
                    return True
                raise ChangeRefused(
                    f"voter {new.voter_id} exists already, at {member.raft} (raft) and "
                    f"{member.grpc} (gRPC): choose another id, or remove that one first"
                )
            taken: set[Endpoint] = {member.raft, member.grpc} & {new.raft, new.grpc}
            if taken:
                raise ChangeRefused(f"{taken.pop()} is the address of voter {member.voter_id}")
            if member.observer:
                raise ChangeRefused(
                    f"voter {member.voter_id} is still being added: finish that with "
                    "`quorate quorum add-voter`, or remove it"
                )
        return False

    async def _promote(self, state: pb.VoterStatus) -> None:
        after = tuple(
            msgspec.structs.replace(member, observer=False, directory_id=state.directory_id)
            if member.voter_id == state.voter_id
            else member
            for member in self._members()
        )
        await self._require_majority(after, f"adding voter {state.voter_id}")
        await self._replace(after)

    # -- removing --------------------------------------------------------------------------------

    async def remove_voter(self, voter_id: int) -> MetadataOffset:
        """Remove a voter or observer; return the metadata offset of the change.

        A leader that is to be removed transfers its leadership first; the next leader removes it.

        Raises:
            NoSuchMember: it is not in the quorum.
            ChangeRefused: it is the last voter.
            ChangeNotYet: the others would be no majority, or it leads and none of them could.
            NotLeader, OutcomeLost: go on at the next leader.
        """
        with self._alone(f"removing voter {voter_id}"):
            members = self._members()
            rest = tuple(member for member in members if member.voter_id != voter_id)
            if len(rest) == len(members):
                ids = ", ".join(str(member.voter_id) for member in members)
                raise NoSuchMember(f"voter {voter_id} is not in the quorum: it has {ids}")
            is_voter = any(m.voter_id == voter_id and not m.observer for m in members)
            if is_voter:
                if not any(not member.observer for member in rest):
                    raise ChangeRefused(f"voter {voter_id} is the last one: it cannot be removed")
                await self._require_majority(rest, f"removing voter {voter_id}")
            if voter_id == self._voter.config.voter_id:
                await self.transfer(await self._best_successor())
                raise NotLeader
            return await self._replace(rest)

    async def _best_successor(self) -> int:
        status = await quorum_status(self._voter)
        others = [v for v in status.voters if v.voter_id != status.voter_id and not v.observer]
        return max(others, key=lambda v: (v.connected, v.match_offset)).voter_id

    # -- handing the leadership over -------------------------------------------------------------

    async def transfer(self, voter_id: int) -> None:
        """Make ``voter_id`` the leader; return when it is.

        Raises:
            ChangeRefused: it is no voter.
            ChangeNotYet: it cannot be as things are, or did not become it.
        """
        voter = self._voter
        own_id = voter.config.voter_id
        if voter_id == own_id:
            return
        try:
            await asyncio.wrap_future(voter.driver.call(lambda n: n.begin_transfer(voter_id)))
        except TransferNotYet as error:
            raise ChangeNotYet(str(error)) from error
        except TransferRefused as error:
            raise ChangeRefused(str(error)) from error
        while voter.leadership.leader_id != voter_id:
            if voter.leadership.leader_id not in (0, own_id):
                leader = voter.leadership.leader_id
                raise ChangeNotYet(f"voter {leader} leads now, not voter {voter_id}")
            if not await asyncio.wrap_future(voter.driver.call(_may_yet_lead)):
                raise ChangeNotYet(
                    f"voter {voter_id} did not take the leadership over in time: voter {own_id} "
                    "still leads"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await voter.changed()

    # -- common ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if self._under_way:
            raise ChangeNotYet(f"another change is under way ({self._under_way}): wait for it")
        self._under_way = what
        try:
            yield
        finally:
            self._under_way = ""

    def _members(self) -> tuple[QuorumVoter, ...]:
        if not self._voter.leadership.leads:
            raise NotLeader
        return self._voter.image.voter_set.voters

    async def _replace(self, members: tuple[QuorumVoter, ...]) -> MetadataOffset:
        version = self._voter.image.voter_set.version
        record = QuorumVoterSet(expected_version=version, voters=members)
        offset, result = await self._voter.propose(record)
        if not result.ok:
            refusal = result.results[0]
            is_passing = refusal.code is ResultCode.VERSION_CONFLICT
            raise (ChangeNotYet if is_passing else ChangeRefused)(refusal.detail)
        return offset

    async def _state_of(self, voter_id: int) -> pb.VoterStatus:
        self._members()
        status = await quorum_status(self._voter)
        for state in status.voters:
            if state.voter_id == voter_id:
                return state
        raise ChangeRefused(f"voter {voter_id} was removed meanwhile")

    async def _require_majority(self, members: Sequence[QuorumVoter], what: str) -> None:
        """Check that the voters among ``members`` could commit anything, as things are."""
        status = await quorum_status(self._voter)
        voters = {member.voter_id for member in members if not member.observer}
        states = [state for state in status.voters if state.voter_id in voters]
        ready = [state.voter_id for state in states if _is_caught_up(state)]
        if 2 * len(ready) <= len(voters):
            missing = sorted(voters - set(ready))
            raise ChangeNotYet(
                f"{what} would leave {len(voters)} voters of which only {len(ready)} are connected "
                f"and caught up, no majority: start voter {_listed(missing)} first"
            )


def _may_yet_lead(node: RaftNode) -> bool:
    """Return whether a transfer that was begun is not given up: it goes on, or this voter was
    deposed.
    """
    return node.hands_over or not node.is_leader


def _is_caught_up(state: pb.VoterStatus) -> bool:
    is_near = 0 <= state.lag <= CAUGHT_UP_LAG and state.match_offset > 0
    return state.connected and is_near and state.last_heard_ms <= HEARD_MS


def _progress(
    phase: "pb.AddVoterPhase.ValueType", state: pb.VoterStatus, detail: str
) -> pb.AddVoterProgress:
    return pb.AddVoterProgress(
        phase=phase,
        match_offset=state.match_offset,
        last_offset=state.match_offset + state.lag,
        detail=detail,
    )


def _listed(voter_ids: Sequence[int]) -> str:
    return " or ".join(map(str, voter_ids))
