"""Elections: when this voter stands, after a pre-vote, and when it believes that a leader lives
(P8, P17).

The library stands as soon as its deadline has passed. Here it first asks who would vote for it,
without spending a term; only with a majority of pre-votes may the library stand. So a voter that
was cut off or restarted cannot unseat a healthy leader. Two rules keep the quorum from staying
without a leader for ever: a voter without a leader adopts a higher term of a pre-vote request, and
a leader that is answered in a higher term steps down.

Only voters of this voter's own applied set count, and it does not stand before it has applied
everything that it knows to be committed: so it counts by the newest committed set that it can know
of. It answers every voter that asks, with or without a vote of its own: the other may know a newer
set, in which it has one.

In a leadership transfer the leader tells the next one to stand at once; then there is no pre-vote.
"""

import logging
import random

from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.guards import Vote, grants_pre_vote
from quorate.quorum.raft.leadership import LeaderLease
from quorate.quorum.raft.library import FOLLOWER, LibraryVoter
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.staleness import LogEnd, PromiseBook
from quorate.quorum.raft.storage.journal import RaftJournal

log = logging.getLogger(__name__)


class PreVoteVoter(LibraryVoter):
    """A library voter with a pre-vote before each election."""

    def __init__(
        self,
        options: RaftOptions,
        own: VoterNode,
        others: list[VoterNode],
        journal: RaftJournal,
        poller: DrivenPoller,
        transport: VoterTransport,
        admission: Admission,
    ) -> None:
        self.options = options
        self.admission = admission
        self._votes: set[VoterNode] = set()
        self._pre_votes: set[VoterNode] = set()
        self._pre_vote_term = 0
        self._leader_heard_s = float("-inf")
        self.lease = LeaderLease()
        self._pre_vote_won = False
        self._transfer_requested = False
        self.promises = PromiseBook(journal, lambda voter_id: self.admission.directory_of(voter_id))
        super().__init__(own, others, options, journal, poller, transport)

    def start_election_clock(self) -> None:
        """Start the clock: a lone voter stands at once, others when they have heard no leader for a
        while.
        """
        wait_s = self.random_election_timeout_s() if self.others else 0.0
        self.election_deadline_s = clock_s() + wait_s

    def majority_heard_s(self) -> float:
        """Return when answers of a majority, this voter included, were last read; they
        may be old.
        """
        if not self.others:
            return clock_s()
        heard = sorted((self.last_response_s[node] for node in self.others), reverse=True)
        return heard[(len(self.others) + 1) // 2 - 1]

    def silence_is_over(self) -> bool:
        """Return whether the leader has been silent for long enough to ask for pre-votes."""
        return (
            bool(self.others)
            and not self.is_leader
            and not self._pre_vote_won
            and self._is_candidate()
            and clock_s() > self.election_deadline_s
        )

    def _is_candidate(self) -> bool:
        """Return whether this voter could be elected at all, by the newest voter set that it can
        know.
        """
        return (
            self.admission.takes_part
            and self.admission.has_vote
            and self.last_applied >= self.commit_index
            and self._has_what_is_committed(self._own_vote())
        )

    @property
    def may_stand(self) -> bool:
        """Whether a majority would vote for this voter, or there is no other voter to ask."""
        return (self._pre_vote_won or not self.others) and self._is_candidate()

    @property
    def is_about_to_campaign(self) -> bool:
        """Whether a majority would vote for this voter, even if it cannot stand now."""
        return self._pre_vote_won

    def ask_pre_votes(self) -> None:
        """Ask the others for pre-votes, before a term is spent on an election."""
        self.election_deadline_s = clock_s() + self.random_election_timeout_s()
        if self._leader_is_silent:
            # Not at the first silence: on a busy machine the delay is mostly our own.
            self._SyncObj__raftLeader = None
        own = self._own_vote()
        self._pre_votes = set()
        self._pre_vote_term = own.term
        for node in self.others:
            self.transport.send(
                node,
                {
                    "type": "pre_vote",
                    "term": own.term,
                    "last_log_term": own.last_log_term,
                    "last_log_index": own.last_log_index,
                },
            )

    def forget_silent_leader(self) -> None:
        """Forget a silent leader at a voter that does not stand, such as an observer: it would name
        it for ever.
        """
        if self._leader_is_silent and not self.is_leader and not self._is_candidate():
            self._SyncObj__raftLeader = None

    @property
    def _leader_is_silent(self) -> bool:
        return clock_s() - self._leader_heard_s > 2 * self.options.election_timeout_max_s

    def heard_leader(self) -> None:
        """Record that the current leader sent a message."""
        self._leader_heard_s = clock_s()
        self._pre_vote_won = self._transfer_requested

    def stood(self) -> None:
        """Note that the library could stand: another election needs another majority of
        pre-votes.
        """
        self._pre_vote_won = self._transfer_requested = False

    # -- messages --------------------------------------------------------------------------------

    def on_election_message(self, node: VoterNode, message: Message) -> bool:
        """Handle a message about elections; return False if the library is to see it."""
        match message["type"]:
            case "request_vote":
                self.promises.is_in(node.voter_id, message["term"])
                return not self._has_what_is_committed(_asked(message))
            case "pre_vote":
                self.promises.is_in(node.voter_id, message["term"])
                self._on_pre_vote(node, message)
            case "response_pre_vote":
                self._on_pre_vote_granted(node, message)
            case "timeout_now":
                self._on_timeout_now(node, message)
            case "response_vote":
                is_new = self._counts(node) and node not in self._votes
                if message["term"] == self.term and is_new:
                    self.promises.voted(node.voter_id, self.term)
                    self._votes.add(node)
                    return False
            case _:
                return False
        return True

    def adopt_term(self, term: int) -> None:
        """Follow no leader, in ``term``, which is higher than ours; no vote is given yet."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def _on_pre_vote(self, node: VoterNode, message: Message) -> None:
        asked = _asked(message)
        heard_s = self.majority_heard_s() if self.is_leader else self._leader_heard_s
        recently = clock_s() - heard_s < self.options.election_timeout_min_s
        if not recently and asked.term > self.term:
            # Else two voters could refuse each other for ever: one for its log, one for its term.
            self.adopt_term(asked.term)
        grants = grants_pre_vote(asked, self._own_vote(), leader_heard_recently=recently)
        if grants and self._has_what_is_committed(asked):
            self.transport.send(node, {"type": "response_pre_vote", "term": message["term"]})

    def _on_pre_vote_granted(self, node: VoterNode, message: Message) -> None:
        if self.is_leader or not message["term"] == self._pre_vote_term == self.term:
            return
        if not self._counts(node):
            return
        self._pre_votes.add(node)
        if len(self._pre_votes) + 1 > (len(self.others) + 1) / 2:
            self._stand_now()

    def _on_timeout_now(self, node: VoterNode, message: Message) -> None:
        """Stand at once in a leadership transfer: only the present leader can ask for it, in its
        term.
        """
        if node == self.leader and message["term"] == self.term:
            log.info("told by leader %d to stand for election", node.voter_id)
            self._transfer_requested = True
            self._stand_now()

    def _counts(self, node: VoterNode) -> bool:
        return node in self.others and self.admission.counts(node.voter_id)

    def _stand_now(self) -> None:
        self._pre_votes = set()
        self._votes = set()
        self._pre_vote_won = True
        self.poller.wake()

    def begin_taking_part(self) -> None:
        """Give no vote in a term that was heard of before this voter took part: it may have voted
        in it, and its disk may have forgotten that.
        """
        spent = self.admission.folder.spent_term
        if spent > self.term or (spent == self.term and not self.journal.getVotedForNodeId()):
            self._SyncObj__setCurrentTerm(spent, self.own.id)

    def _has_what_is_committed(self, vote: Vote) -> bool:
        """Return whether the log of this vote has all that others know to be committed."""
        end = LogEnd(vote.last_log_term, vote.last_log_index)
        return end >= self.admission.folder.committed

    def _own_vote(self) -> Vote:
        last = self.journal[-1]
        return Vote(self.term, last[2], last[1])

    # -- connections -----------------------------------------------------------------------------

    def _SyncObj__onNodeConnected(self, node: VoterNode) -> None:
        """Stand soon if there is no leader: voters that start together need not sit out their
        timeouts.
        """
        super()._SyncObj__onNodeConnected(node)
        if self.leader is None and not self.is_leader:
            self._stand_soon()

    def _SyncObj__onNodeDisconnected(self, node: VoterNode) -> None:
        """Stand soon if the leader's connection closed: that shows its end sooner than its silence
        does.
        """
        super()._SyncObj__onNodeDisconnected(node)
        if not self.is_leader and self.leader == node:
            self._leader_heard_s = float("-inf")
            self._stand_soon()

    def _stand_soon(self) -> None:
        soon = clock_s() + random.uniform(0, self.options.election_timeout_min_s / 3)
        self.election_deadline_s = min(self.election_deadline_s, soon)


def _asked(message: Message) -> Vote:
    return Vote(message["term"], message["last_log_term"], message["last_log_index"])
