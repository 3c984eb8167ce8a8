"""Membership changes: this voter counts, and sends to, the members of the applied voter set.

A set takes effect when it is applied. Only neighbouring sets are ever in use, for two reasons:

* Only one member changes per set, and a leader proposes the next set only when it has applied the
  one before (compare-and-set on its version, ``metadata_log.rules.quorum_voters``), as well as the
  no-op of its own term. So an entry with a set is appended only where the set before is committed.
* The commit index comes with the entries and is on disk with them, so a voter with such an entry
  knows that the set before it is committed; and no voter stands with committed entries unapplied.

So a candidate counts by the newest set in its log, or by the one before; their majorities overlap.

That a set is committed is on disk before a leader acts upon it or tells anybody. A removed voter
may be gone for ever once it knows: a leader that forgot the change would wait for its vote in vain.
"""

import logging

from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import Operation, QuorumVoter, QuorumVoterSet, Transaction
from quorate.quorum.raft.compaction import CompactingVoter
from quorate.quorum.raft.leadership import (
    MAX_LAG,
    NEVER,
    LeadershipTransfer,
    TransferNotYet,
    TransferRefused,
    TransferStep,
)
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.raft_clock import clock_s, wall_clock_ms

log = logging.getLogger(__name__)


class MemberVoter(CompactingVoter):
    """A voter whose peers may change."""

    _first_set_term = 0
    _transfer: LeadershipTransfer | None = None
    recovered = False
    """Whether everything on disk is applied: from then on sets take effect as they are applied."""

    # -- who belongs to it -----------------------------------------------------------------------

    def follow_voter_set(self) -> None:
        """Count and send by the applied set from now on.

        Raises:
            RemovedFromQuorum: this voter is no longer in it.
        """
        before, voter_set = self.admission.voter_set, self._machine.voter_set
        if voter_set.version == before.version or not self.recovered:
            return
        self.admission.follow(voter_set)
        log.info("voter set %d: %s", voter_set.version, _described(voter_set))
        known = {node.voter_id: node for node in (*self.others, *self.observers)}
        stay = {
            member.voter_id: known[member.voter_id]
            for member in voter_set.voters
            if member.voter_id in known and _is_same(before, known[member.voter_id], member)
        }
        gone = [node for node in known.values() if node.voter_id not in stay]
        for node in gone:
            self._snapshots.cancelTransmisstion(node)
            self.forget(node)
            self.lease.forget(node)
            self.journal.forget_promises(node.voter_id)
        members = [
            (stay.get(member.voter_id) or VoterNode(member.voter_id, member.raft), member.observer)
            for member in voter_set.voters
            if member.voter_id != self.own.voter_id
        ]
        self.set_members(
            [node for node, observes in members if not observes],
            [node for node, observes in members if observes],
        )
        for node in gone:
            self.transport.dropNode(node)
        for node, _ in members:
            if node.voter_id not in stay:
                self.meet(node)
                self.transport.addNode(node)
        self.transport.announce()

    def keep_voter_set(self) -> None:
        """Have the commit index of the newest applied set on disk, before anybody hears
        of the set.
        """
        if self._machine.voter_set.version != self.admission.voter_set.version:
            self.journal.keep_commit_index()

    def _SyncObj__sendAppendEntries(self) -> None:
        if self.last_applied < self.commit_index:
            # The commit index in the message may be that of a set which is not applied yet.
            self.journal.keep_commit_index()
        super()._SyncObj__sendAppendEntries()

    def first_voter_set(self) -> bytes | None:
        """Return the command that commits the configured voters as the first set, when it is time,
        else None.
        """
        if self._machine.voter_set.version or not self.has_applied_its_no_op:
            return None
        voters = self.admission.first_voter_set()
        if voters is None or self._first_set_term == self.term:
            return None
        self._first_set_term = self.term
        record = QuorumVoterSet(
            expected_version=0, voters=voters, metadata_version=NEWEST_METADATA_VERSION
        )
        operation = Operation(records=(record,))
        return encode_transaction(
            Transaction(operations=(operation,), timestamp_ms=wall_clock_ms())
        )

    # -- leadership ------------------------------------------------------------------------------

    @property
    def has_applied_its_no_op(self) -> bool:
        """Whether this voter leads, and everything committed by earlier leaders is applied here."""
        return self.is_leader and self.last_applied >= self.noop_index

    @property
    def leads_caught_up(self) -> bool:
        """Whether this voter leads caught up, as ``has_applied_its_no_op``, and a voter set is
        committed.
        """
        return self.has_applied_its_no_op and self._machine.voter_set.version > 0

    def sole_leader_until_s(self) -> float:
        """Return up to when, on ``clock_s``, this leader is known to have led alone, or
        ``NEVER``.
        """
        if self._transfer is not None and self._transfer.told:
            return NEVER
        return self.lease.sole_leader_until_s(self.others, clock_s())

    # -- handing it over -------------------------------------------------------------------------

    @property
    def hands_over(self) -> bool:
        """Whether a transfer is under way. No entries are appended meanwhile: proposals wait,
        briefly.
        """
        return self._transfer is not None

    def begin_transfer(self, voter_id: int) -> None:
        """Begin to hand the leadership to ``voter_id``. Its success shows in who leads.

        Raises:
            TransferRefused: this voter does not lead, or that one is none, or cannot lead yet.
        """
        target = next((node for node in self.others if node.voter_id == voter_id), None)
        if not self.leads_caught_up:
            raise TransferNotYet(f"voter {self.own.voter_id} does not lead")
        if self._transfer is not None:
            raise TransferNotYet(f"voter {self._transfer.target.voter_id} is about to lead")
        if target is None:
            raise TransferRefused(f"voter {voter_id} is not a voter of this quorum")
        lag = self.journal.last_index - self.match_index[target]
        if not self.transport.is_connected(voter_id):
            raise TransferNotYet(f"voter {voter_id} is not connected to the leader")
        if lag > MAX_LAG:
            raise TransferNotYet(f"voter {voter_id} is {lag} entries behind: try again later")
        log.info("handing the leadership to voter %d", voter_id)
        patience_s = self.options.election_timeout_max_s
        self._transfer = LeadershipTransfer(target, self.term, clock_s(), patience_s)

    def tend_transfer(self) -> None:
        """Continue the transfer that is under way, if there is one."""
        transfer = self._transfer
        if transfer is None:
            return
        target = transfer.target
        if not self.is_leader or self.term != transfer.term or target not in self.others:
            self._transfer = None
            return
        match transfer.step(clock_s(), self.match_index[target], self.journal.last_index):
            case TransferStep.TELL:
                self.transport.send(target, {"type": "timeout_now", "term": self.term})
            case TransferStep.GIVE_UP:
                log.warning("voter %d did not take the leadership over", target.voter_id)
                self._transfer = None
            case TransferStep.WAIT:
                pass


def _is_same(before: VoterSet, node: VoterNode, member: QuorumVoter) -> bool:
    """Return whether the member is the same process: one that was added again has forgotten
    everything.
    """
    was = before.voter(member.voter_id)
    if was is None:
        return node.raft == member.raft  # Configured; this is the first committed set.
    return (
        was.raft == member.raft
        and was.directory_id in (b"", member.directory_id)
        and was.observer >= member.observer
    )


def _described(voter_set: VoterSet) -> str:
    voters = [str(voter.voter_id) for voter in voter_set.voters if not voter.observer]
    observers = [f", {voter.voter_id} observes" for voter in voter_set.voters if voter.observer]
    return ", ".join(voters) + "".join(observers)
