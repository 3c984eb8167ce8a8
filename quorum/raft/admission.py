"""Who takes part in the quorum: wiped, new and removed voters. Pure: no sockets, no clock.

Raft holds only while nobody forgets: a voter whose disk was wiped would vote a second time in a
term and take back acknowledgements. So every data folder has a random directory id, and the
committed voter set names the one of each voter. From that follow three rules:

* A *fresh* voter, one that has never voted nor written an entry, takes no part until it knows that
  it has nothing to remember: every other configured voter is fresh as well and configured with the
  same ones, and nobody has heard of a quorum (the very first start of one), or another one expects
  just this data folder. Who
  expects it has it in its committed voter set; or it saw all of them fresh at the first start,
  and remembers their data folders.
* A voter with a committed voter set talks only to members of it, in the data folders it names. It
  hears others that have a newer set: it may be behind itself, and one of them may lead.
* Only the members of its own committed set, in those folders, count in anyone's majority.

What voters know of each other is in the hello of each connection, sent again when it changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from metadata_log.image import VoterSet
from metadata_log.records import QuorumVoter
from metadata_log.types import VoterId
from quorate_proto.v1.raft_pb2 import (
    RAFT_REFUSAL_NOT_A_VOTER,
    RAFT_REFUSAL_WIPED,
    RaftHello,
    RaftRefusal,
    RaftRefusalReason,
)

REFUSAL_GRACE_S: Final = 1.0
"""A refusal is believed after this long: who refused may be behind, and another one may not."""

_NOT_A_FIRST_ONE: Final = b""
"""Remembered in place of its own directory id by a voter that joins a quorum that exists."""


class LeavesQuorum(Exception):
    """This voter must not go on; the message says why and what to do."""


class RemovedFromQuorum(LeavesQuorum):
    """It was taken out by a committed change."""


class VoterWiped(LeavesQuorum):
    """Its data folder is not the one that the quorum knows."""


class Admission:
    """What this voter knows about the membership of itself and of others."""

    def __init__(
        self,
        own: QuorumVoter,
        configured: Sequence[QuorumVoter],
        is_fresh: Callable[[], bool],
        first_voters: Mapping[int, bytes] = MappingProxyType({}),
        remember_first_voters: Callable[[Mapping[int, bytes]], None] = lambda _directories: None,
    ) -> None:
        """``own``: with its directory id; ``configured``: all of ``quorum.voters``, ``own`` too.

        ``first_voters``: the directory ids that ``remember_first_voters`` was given, by voter; it
        has them on disk when it returns, which is before this voter votes.
        """
        self.own = own
        self.voter_set = VoterSet()
        """The committed set, as far as it is applied here."""
        self._takes_part = not is_fresh() or _is_alone(own, configured)
        self._configured = {voter.voter_id: voter for voter in configured}
        self._is_fresh = is_fresh
        self._first_voters = first_voters
        self._remember_first_voters = remember_first_voters
        self._joins = first_voters.get(own.voter_id) == _NOT_A_FIRST_ONE
        self._hellos: dict[int, RaftHello] = {}
        self._expected_at = 0  # Newest voter set that is known to expect this data folder.
        self._has_heard_of_a_set = False
        self._refusal: tuple[RaftRefusal, float] | None = None

    @property
    def takes_part(self) -> bool:
        """Until it does, it neither votes nor acknowledges, and drops what others send."""
        return self._takes_part

    # -- members ---------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[QuorumVoter, ...]:
        """The committed set, observers included; the configured voters while there is none."""
        return self.voter_set.voters if self.voter_set.version else (*self._configured.values(),)

    @property
    def has_vote(self) -> bool:
        """Whether this voter may stand for election, as far as it knows."""
        if not self.voter_set.version:
            return not self._joins
        member = self.voter_set.voter(self.own.voter_id)
        return self._is_in(self.voter_set) and member is not None and not member.observer

    def _is_in(self, voter_set: VoterSet) -> bool:
        """Whether the set names this voter, in this data folder.

        A voter that was added again reads the log from before its time, with sets that name the
        one it replaces: by those it has no vote, and leaving with that one is not its removal.
        """
        member = voter_set.voter(self.own.voter_id)
        return member is not None and member.directory_id in (b"", self.own.directory_id)

    def follow(self, voter_set: VoterSet) -> None:
        """Another set was applied.

        Raises:
            RemovedFromQuorum: it no longer names this voter, which was a member before, and no
                newer set is known to name it again.
        """
        before, self.voter_set = self.voter_set, voter_set
        is_removed = self._is_in(before) and not self._is_in(voter_set)
        if is_removed and self._expected_at <= voter_set.version:
            raise self._removed(voter_set.version)

    def first_voter_set(self) -> tuple[QuorumVoter, ...] | None:
        """The configured voters with their data folders; None while one was never heard of."""
        if self._unheard():
            return None
        return tuple(
            msgspec.structs.replace(voter, directory_id=self.directory_of(voter.voter_id))
            for voter in self._configured.values()
        )

    def directory_of(self, voter_id: int) -> bytes:
        """Directory id that the voter said it has; empty if it was never heard of."""
        if voter_id == self.own.voter_id:
            return self.own.directory_id
        hello = self._hellos.get(voter_id)
        return b"" if hello is None else hello.directory_id

    def waits_for(self) -> list[QuorumVoter]:
        """Configured voters without which the quorum cannot begin; empty once it has."""
        if self.voter_set.version or self._joins:
            return []
        if self.takes_part:
            return self._unheard()
        return [
            voter
            for voter in self._others()
            if voter.voter_id not in self._hellos
            or not self._hellos[voter.voter_id].fresh
            or self.disagreement(voter.voter_id)
        ]

    def disagreement(self, voter_id: int) -> str:
        """Why no quorum can begin with that voter, if it would begin one of other voters.

        Else, of voters whose configurations overlap, each part could begin a quorum of its own.
        """
        hello = self._hellos.get(voter_id)
        if hello is None or set(hello.configured_voter_ids) == self._configured.keys():
            return ""
        theirs, ours = _listed(hello.configured_voter_ids), _listed(self._configured)
        return f"its quorum.voters are {theirs}, here they are {ours}: make them the same"

    def _others(self) -> list[QuorumVoter]:
        own_id = self.own.voter_id
        return [voter for voter in self._configured.values() if voter.voter_id != own_id]

    def _unheard(self) -> list[QuorumVoter]:
        return [voter for voter in self._others() if voter.voter_id not in self._hellos]

    # -- hellos ----------------------------------------------------------------------------------

    def hello_to(self, voter_id: VoterId) -> RaftHello:
        """What this voter says of itself, and of the receiver."""
        expected = self._expected_directory(voter_id)
        return RaftHello(
            voter_id=self.own.voter_id,
            address=str(self.own.raft),
            directory_id=self.own.directory_id,
            fresh=self._may_begin(),
            voter_set_version=self.voter_set.version,
            knows_receiver=expected is not None,
            receiver_directory_id=expected or b"",
            configured_voter_ids=sorted(self._configured),
        )

    def _may_begin(self) -> bool:
        """Who knows of a quorum that exists must not help others, who do not, to begin another."""
        return self._is_fresh() and not self.voter_set.version and not self._has_heard_of_a_set

    def _expected_directory(self, voter_id: int) -> bytes | None:
        """In which data folder that voter is expected; empty: in any; None: not at all."""
        if not self.voter_set.version:
            return self._first_voters.get(voter_id)
        member = self.voter_set.voter(voter_id)
        return None if member is None else member.directory_id

    def judge(self, hello: RaftHello) -> RaftRefusal | None:
        """Why not to talk to the sender of ``hello``; None if it is welcome."""
        sender = VoterId(hello.voter_id)
        if not self.voter_set.version:
            return self._judge_before_the_first_set(hello)
        member = self.voter_set.voter(sender)
        if member is None:
            if hello.voter_set_version > self.voter_set.version:
                return None
            return self._refuse(
                RAFT_REFUSAL_NOT_A_VOTER, f"voter {sender} is not a member of this quorum"
            )
        is_newer = hello.voter_set_version > self.voter_set.version
        if is_newer or member.directory_id in (b"", hello.directory_id):
            return None
        return self._refuse(
            RAFT_REFUSAL_WIPED,
            f"voter {sender} at {member.raft} had data before (directory "
            f"{_short(member.directory_id)}, now {_short(hello.directory_id)}); its disk was wiped "
            f"or replaced: remove it with `quorate quorum remove-voter {sender}` and add it again",
        )

    def _judge_before_the_first_set(self, hello: RaftHello) -> RaftRefusal | None:
        sender = hello.voter_id
        if hello.voter_set_version:
            return None
        if sender not in self._configured:
            return self._refuse(RAFT_REFUSAL_NOT_A_VOTER, f"voter {sender} is not configured here")
        if self._first_voters.get(sender, hello.directory_id) == hello.directory_id:
            return None
        return self._refuse(
            RAFT_REFUSAL_WIPED,
            f"voter {sender} lost its data folder (directory {_short(self._first_voters[sender])}, "
            f"now {_short(hello.directory_id)}) before the quorum had begun: stop all voters, "
            "empty their data folders and start again",
        )

    def counts(self, voter_id: int) -> bool:
        """Whether who speaks as that voter is the one that the applied set means, not a later one.

        What another one says is heard, but neither its votes nor its acknowledgements count.
        """
        member, hello = self.voter_set.voter(voter_id), self._hellos.get(voter_id)
        if member is None or hello is None:
            return True
        return member.directory_id in (b"", hello.directory_id)

    def judge_again(self, voter_id: int) -> RaftRefusal | None:
        """As ``judge``, of who was welcome before; the voter set may have changed since."""
        hello = self._hellos.get(voter_id)
        return None if hello is None else self.judge(hello)

    def heard(self, hello: RaftHello) -> None:
        """A welcome hello came; this may be what a fresh voter waited for."""
        self._hellos[hello.voter_id] = hello
        self._has_heard_of_a_set |= hello.voter_set_version > 0
        is_expected = hello.receiver_directory_id in (b"", self.own.directory_id)
        if hello.knows_receiver and is_expected:
            self._expected_at = max(self._expected_at, hello.voter_set_version)
            if not self._takes_part:
                self._joins = hello.voter_set_version > 0
                if self._joins:
                    # It may adopt a term and restart before it has a set: it still has no vote.
                    self._remember_first_voters({self.own.voter_id: _NOT_A_FIRST_ONE})
                self._takes_part = True
        elif not self._takes_part and self._may_begin() and not self.waits_for():
            self._begin()

    def _begin(self) -> None:
        """All are fresh: nobody has promised anything to anybody yet."""
        self._first_voters = {
            voter_id: self.directory_of(voter_id) for voter_id in self._configured
        }
        self._remember_first_voters(self._first_voters)
        self._takes_part = True

    # -- refusals --------------------------------------------------------------------------------

    def refused(self, refusal: RaftRefusal, now_s: float) -> bool:
        """Another voter does not talk to this one; False if that is of no account."""
        self._has_heard_of_a_set |= refusal.voter_set_version > 0
        known = max(self.voter_set.version, self._expected_at)
        is_member = self._is_in(self.voter_set)
        newer = refusal.voter_set_version > known
        if not newer and (is_member or refusal.voter_set_version < known):
            return False  # The other one is behind.
        if refusal.reason == RAFT_REFUSAL_NOT_A_VOTER and not self._takes_part:
            return True  # It waits to be added.
        if self._refusal is None:
            self._refusal = (refusal, now_s)
        return True

    def check(self, now_s: float) -> None:
        """Whether a refusal has become final. Call some times a second.

        Raises:
            RemovedFromQuorum, VoterWiped: it has.
        """
        if self._refusal is None:
            return
        refusal, since_s = self._refusal
        if max(self.voter_set.version, self._expected_at) > refusal.voter_set_version:
            self._refusal = None
        elif now_s - since_s >= REFUSAL_GRACE_S:
            if refusal.reason == RAFT_REFUSAL_WIPED:
                raise VoterWiped(refusal.detail)
            raise self._removed(refusal.voter_set_version)

    def _refuse(self, reason: "RaftRefusalReason.ValueType", detail: str) -> RaftRefusal:
        return RaftRefusal(reason=reason, detail=detail, voter_set_version=self.voter_set.version)

    def _removed(self, version: int) -> RemovedFromQuorum:
        return RemovedFromQuorum(
            f"voter {self.own.voter_id} was removed from the quorum (voter set {version}). To use "
            f"this process again, empty its data folder and run `{self.how_to_add()}`"
        )

    def how_to_add(self) -> str:
        """The command that makes this process a voter."""
        own = self.own
        return f"quorate quorum add-voter {own.voter_id}@{own.raft}/{own.grpc.port}"


def _is_alone(own: QuorumVoter, configured: Sequence[QuorumVoter]) -> bool:
    return all(voter.voter_id == own.voter_id for voter in configured)


def _listed(voter_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(voter_ids)))


def _short(directory_id: bytes) -> str:
    return f"{directory_id.hex()[:8]}…"
