"""Decides which voters take part in the quorum: wiped, new and removed ones. Pure: no sockets, no
clock.

Raft holds only while nobody forgets: a voter whose disk was wiped would vote a second time in a
term and take back acknowledgements. So every data folder has a random directory id, and the
committed voter set names the one of each voter. Three rules follow:

* A *fresh* voter, one that has never voted nor written an entry, takes no part until it knows that
  it has nothing to remember. Either every other configured voter is fresh as well and configured
  with the same ones, and nobody has heard of a quorum (its very first start); or another voter
  expects just this data folder. That one has the folder in its committed voter set; or it saw all
  of them fresh at the first start, and remembers their data folders.
* A voter with a committed voter set talks only to members of it, in the data folders that it names.
  It listens to others that have a newer set: it may be behind itself, and one of them may lead.
* Only the members of its own committed set, in those folders, count in anyone's majority.

Voters learn of each other in the hello of each connection, which is sent again when it changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from quorate.common.types import VoterId
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import QuorumVoter
from quorate.quorum.raft.leaving import RemovedFromQuorum, VoterWiped
from quorate.quorum.raft.staleness import TrustedFolder
from quorate_proto.v1.raft_pb2 import (
    RAFT_REFUSAL_NOT_A_VOTER,
    RAFT_REFUSAL_WIPED,
    RaftHello,
    RaftRefusal,
    RaftRefusalReason,
)

REFUSAL_GRACE_S: Final = 1.0
"""A refusal is final after this time: the voter that refused may be behind, and another one may
not.
"""

_NOT_A_FIRST_ONE: Final = b""
"""A voter that joins an existing quorum remembers this in place of its own directory id."""


class Admission:
    """The knowledge of this voter about its own membership and that of others."""

    def __init__(
        self,
        own: QuorumVoter,
        configured: Sequence[QuorumVoter],
        is_fresh: Callable[[], bool],
        first_voters: Mapping[int, bytes] = MappingProxyType({}),
        remember_first_voters: Callable[[Mapping[int, bytes]], None] = lambda _directories: None,
        folder: TrustedFolder | None = None,
    ) -> None:
        """Create it from the configuration.

        ``own`` has its directory id; ``configured`` are all of ``quorum.voters``, with ``own``.
        ``first_voters`` holds by voter the directory ids that ``remember_first_voters`` was given.
        That function has them on disk when it returns, which is before this voter votes.
        ``folder`` finds out whether the data folder is an old copy; it is trusted if that is None.
        """
        self.own = own
        self.folder = folder or TrustedFolder()
        self.stale: dict[int, str] = {}
        """The reasons why other voters found their own data folders to be stale, by voter id."""
        self.voter_set = VoterSet()
        """The committed set, as far as it is applied here."""
        self._takes_part = not is_fresh() or _is_alone(own, configured)
        self._configured = {voter.voter_id: voter for voter in configured}
        self._is_fresh = is_fresh
        self._first_voters = first_voters
        self._remember_first_voters = remember_first_voters
        self._joins = first_voters.get(own.voter_id) == _NOT_A_FIRST_ONE
        self._hellos: dict[int, RaftHello] = {}
        self._expected_at = 0  # The newest voter set that is known to expect this data folder.
        self._has_heard_of_a_set = False
        self._refusal: tuple[RaftRefusal, float] | None = None

    @property
    def takes_part(self) -> bool:
        """Whether this voter takes part. Until then it neither votes nor acknowledges, and drops
        all messages.
        """
        return self._takes_part and self.folder.is_vouched

    @property
    def is_admitted(self) -> bool:
        """Whether the quorum knows this voter's folder; it may still have to be vouched for."""
        return self._takes_part

    # -- members ---------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[QuorumVoter, ...]:
        """The committed set with its observers, or the configured voters while there is none."""
        return self.voter_set.voters if self.voter_set.version else (*self._configured.values(),)

    @property
    def has_vote(self) -> bool:
        """Whether this voter may stand for election, as far as it knows."""
        if not self.voter_set.version:
            return not self._joins
        member = self.voter_set.voter(self.own.voter_id)
        return self._is_in(self.voter_set) and member is not None and not member.observer

    def _is_in(self, voter_set: VoterSet) -> bool:
        """Return whether the set names this voter, in this data folder.

        A voter that was added again reads the log from before its time, with sets that name the one
        that it replaces: in those sets it has no vote, and the removal of that one is not its own.
        """
        member = voter_set.voter(self.own.voter_id)
        return member is not None and member.directory_id in (b"", self.own.directory_id)

    def follow(self, voter_set: VoterSet) -> None:
        """Use another set, which was applied.

        Raises:
            RemovedFromQuorum: it no longer names this voter, which was a member before, and no
            newer set is known to name it again.
        """
        before, self.voter_set = self.voter_set, voter_set
        is_removed = self._is_in(before) and not self._is_in(voter_set)
        if is_removed and self._expected_at <= voter_set.version:
            raise self._removed(voter_set.version)

    def first_voter_set(self) -> tuple[QuorumVoter, ...] | None:
        """Return the configured voters with their data folders, or None while one was never heard
        of.
        """
        if self._unheard():
            return None
        return tuple(
            msgspec.structs.replace(voter, directory_id=self.directory_of(voter.voter_id))
            for voter in self._configured.values()
        )

    def directory_of(self, voter_id: int) -> bytes:
        """Return the directory id that the voter named, or an empty one if it was never
        heard of.
        """
        if voter_id == self.own.voter_id:
            return self.own.directory_id
        hello = self._hellos.get(voter_id)
        return b"" if hello is None else hello.directory_id

    def waits_for(self) -> list[QuorumVoter]:
        """Return the configured voters without which the quorum cannot begin; empty once it has
        begun.
        """
        if self.voter_set.version or self._joins:
            return []
        if self._takes_part:
            return self._unheard()
        return [
            voter
            for voter in self._others()
            if voter.voter_id not in self._hellos
            or not self._hellos[voter.voter_id].fresh
            or self.disagreement(voter.voter_id)
        ]

    def disagreement(self, voter_id: int) -> str:
        """Return why no quorum can begin with that voter, if it would begin one of other voters.

        Without this check, voters whose configurations overlap could each begin a quorum of their
        own.
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
        """Return what this voter says of itself, and of the receiver."""
        expected = self._expected_directory(voter_id)
        hello = RaftHello(
            voter_id=self.own.voter_id,
            address=str(self.own.raft),
            directory_id=self.own.directory_id,
            fresh=self._may_begin(),
            voter_set_version=self.voter_set.version,
            knows_receiver=expected is not None,
            receiver_directory_id=expected or b"",
            configured_voter_ids=sorted(self._configured),
        )
        self.folder.tell(hello, voter_id)
        return hello

    def _may_begin(self) -> bool:
        """Return whether this voter may help to begin a quorum: not if it knows of one
        that exists.
        """
        return self._is_fresh() and not self.voter_set.version and not self._has_heard_of_a_set

    def _expected_directory(self, voter_id: int) -> bytes | None:
        """Return the data folder in which that voter is expected; empty means any, None means not
        at all.
        """
        if not self.voter_set.version:
            return self._first_voters.get(voter_id)
        member = self.voter_set.voter(voter_id)
        return None if member is None else member.directory_id

    def judge(self, hello: RaftHello) -> RaftRefusal | None:
        """Return why not to talk to the sender of ``hello``, or None if it is welcome."""
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
        """Return whether this voter is the one that the applied set means, and not a later one.

        Messages of a later one are heard, but neither its votes nor its acknowledgements count.
        """
        member, hello = self.voter_set.voter(voter_id), self._hellos.get(voter_id)
        if member is None or hello is None:
            return True
        return member.directory_id in (b"", hello.directory_id)

    def judge_again(self, voter_id: int) -> RaftRefusal | None:
        """Judge a voter that was welcome before, as ``judge`` does: the voter set may have changed
        since.
        """
        hello = self._hellos.get(voter_id)
        return None if hello is None else self.judge(hello)

    def heard(self, hello: RaftHello) -> None:
        """Take in a welcome hello, for which a fresh voter may have waited.

        Raises:
            VoterStale: the sender knows that this voter's folder is an old copy.
        """
        self.folder.heard(hello)
        self.stale.pop(hello.voter_id, None)
        self._hellos[hello.voter_id] = hello
        self._has_heard_of_a_set |= hello.voter_set_version > 0
        is_expected = hello.receiver_directory_id in (b"", self.own.directory_id)
        if hello.knows_receiver and is_expected:
            self._expected_at = max(self._expected_at, hello.voter_set_version)
            if not self._takes_part:
                self._joins = hello.voter_set_version > 0
                if self._joins:
                    # It may adopt a term and restart before it has a set. It still has no vote.
                    self._remember_first_voters({self.own.voter_id: _NOT_A_FIRST_ONE})
                self._takes_part = True
        elif not self._takes_part and self._may_begin() and not self.waits_for():
            self._begin()
        self._vouch_if_all_are_heard()

    def _vouch_if_all_are_heard(self) -> None:
        own = self.own.voter_id
        if not self.folder.is_vouched and all(
            member.observer or member.voter_id == own or member.voter_id in self._hellos
            for member in self.members
        ):
            self.folder.vouch()

    def _begin(self) -> None:
        """Begin the quorum: all voters are fresh, so none has promised anything yet."""
        self._first_voters = {
            voter_id: self.directory_of(voter_id) for voter_id in self._configured
        }
        self._remember_first_voters(self._first_voters)
        self._takes_part = True

    # -- refusals --------------------------------------------------------------------------------

    def refused(self, refusal: RaftRefusal, now_s: float) -> bool:
        """Note that another voter refuses to talk to this one; return False if that does not
        matter.
        """
        self._has_heard_of_a_set |= refusal.voter_set_version > 0
        known = max(self.voter_set.version, self._expected_at)
        is_member = self._is_in(self.voter_set)
        newer = refusal.voter_set_version > known
        if not newer and (is_member or refusal.voter_set_version < known):
            return False  # The other voter is behind.
        if refusal.reason == RAFT_REFUSAL_NOT_A_VOTER and not self._takes_part:
            return True  # This voter waits to be added.
        if self._refusal is None:
            self._refusal = (refusal, now_s)
        return True

    def check(self, now_s: float) -> None:
        """Find out whether a refusal has become final. Call it a few times a second.

        Raises:
            RemovedFromQuorum, VoterWiped: it has.
        """
        self._vouch_if_all_are_heard()
        self.folder.tick(now_s)
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
        """Return the command that makes this process a voter."""
        own = self.own
        return f"quorate quorum add-voter {own.voter_id}@{own.raft}/{own.grpc.port}"


def _is_alone(own: QuorumVoter, configured: Sequence[QuorumVoter]) -> bool:
    return all(voter.voter_id == own.voter_id for voter in configured)


def _listed(voter_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(voter_ids)))


def _short(directory_id: bytes) -> str:
    return f"{directory_id.hex()[:8]}…"
