"""Mutants of elections, replication and what is on disk before what is sent (P3-P8, P17, P18)."""

from typing import Any
from unittest.mock import patch

import pysyncobj.syncobj

import quorate.quorum.raft.elections as elections
import quorate.quorum.raft.raft_node as node_module
from quorate.quorum.raft.driver import RaftDriver
from quorate.quorum.raft.elections import PreVoteVoter
from quorate.quorum.raft.guards import FilteredAppend, Log, Vote, filter_append, grants_pre_vote
from quorate.quorum.raft.leadership import LeaderLease
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.storage.journal import RaftJournal
from tests.sim.mutants import Replacement, mutant, nothing

_library_message = pysyncobj.syncobj.SyncObj._SyncObj__onMessageReceived
_on_append = RaftNode._on_append_entries
_on_next = RaftNode._on_next_node_idx
_send_next = RaftNode._SyncObj__sendNextNodeIdx
_settle = RaftNode.settle
_tick = RaftNode.tick
_sync = RaftJournal.sync
_set_term = RaftJournal.setCurrentTerm
_answered = LeaderLease.answered
_election_message = PreVoteVoter.on_election_message

# -- replication -----------------------------------------------------------------------------------


@mutant("p3-commit-on-snapshot", "a snapshot message moves the commit index")
def _p3() -> list[Replacement]:
    def on_append_entries(self: RaftNode, node: VoterNode, message: Message) -> None:
        if "prevLogIdx" in message or message["term"] < self.term:
            _on_append(self, node, message)
            return
        self.heard_leader()
        self.verified_index = None
        _library_message(self, node, message)
        self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)

    return [(RaftNode, "_on_append_entries", on_append_entries)]


@mutant("p4-trim", "entries that are in the log already are not taken off the message")
def _p4() -> list[Replacement]:
    def untrimmed(message: Message, log: Log, commit_index: int) -> FilteredAppend:
        previous = message["prevLogIdx"]
        if log.term_at(previous) != message["prevLogTerm"]:
            return FilteredAppend(message, None)
        entries = message["entries"]
        return FilteredAppend(message, entries[-1][1] if entries else previous)

    return [(node_module, "filter_append", untrimmed)]


@mutant("p4-verified-ack", "what a message does not prove is acknowledged as well")
def _p4_ack() -> list[Replacement]:
    def send_next(self: RaftNode, node: VoterNode, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        self.verified_index = None
        _send_next(self, node, *args, **kwargs)

    return [(RaftNode, "_SyncObj__sendNextNodeIdx", send_next)]


@mutant("p4-verified-commit", "the commit index goes beyond what a message proves")
def _p4_commit() -> list[Replacement]:
    def unlimited(message: Message, log: Log, commit_index: int) -> FilteredAppend:
        filtered = filter_append(message, log, commit_index)
        raised = {**filtered.message, "commit_index": message["commit_index"]}
        return filtered._replace(message=raised)

    return [(node_module, "filter_append", unlimited)]


@mutant("p5-ack-term", "acknowledgements of an earlier term count")
def _p5() -> list[Replacement]:
    def on_next_node_idx(self: RaftNode, node: VoterNode, message: Message) -> None:
        _on_next(self, node, {**message, "term": max(self.term, message["term"])})

    return [(RaftNode, "_on_next_node_idx", on_next_node_idx)]


@mutant("p7-back-off", "a conflict is answered by the entry, not by the beginning of its term")
def _p7() -> list[Replacement]:
    return [(node_module, "conflict_index", lambda _log, index, _commit_index: index)]


@mutant("p7-first-answer", "of several answers to what was under way the last one counts")
def _p7_first() -> list[Replacement]:
    def on_next_node_idx(self: RaftNode, node: VoterNode, message: Message) -> None:
        _on_next(self, node, message)
        counts = message["term"] == self.term and self.is_leader and node in self.next_index
        if message["reset"] and counts:
            self.next_index[node] = min(message["next_node_idx"], self.journal.last_index + 1)

    return [(RaftNode, "_on_next_node_idx", on_next_node_idx)]


@mutant("sent-time", "an answer counts for the time when it is read")
def _sent_time() -> list[Replacement]:
    def answered(self: LeaderLease, node: VoterNode, _sent_s: float, now_s: float) -> None:
        _answered(self, node, now_s, now_s)

    return [(LeaderLease, "answered", answered)]


# -- elections -------------------------------------------------------------------------------------


@mutant("p8-pre-vote", "a voter stands without asking who would vote for it")
def _p8() -> list[Replacement]:
    def ask_pre_votes(self: PreVoteVoter) -> None:
        self._stand_now()

    return [(PreVoteVoter, "ask_pre_votes", ask_pre_votes)]


@mutant("p8-leader-heard", "pre-votes are granted while a leader is heard")
def _p8_heard() -> list[Replacement]:
    def grants(asked: Vote, own: Vote, *, leader_heard_recently: bool) -> bool:
        return grants_pre_vote(asked, own, leader_heard_recently=False)

    return [(elections, "grants_pre_vote", grants)]


@mutant("vote-counted-twice", "the same voter's vote counts as often as it comes")
def _votes() -> list[Replacement]:
    def on_election_message(self: PreVoteVoter, node: VoterNode, message: Message) -> bool:
        return message["type"] != "response_vote" and _election_message(self, node, message)

    return [(PreVoteVoter, "on_election_message", on_election_message)]


@mutant("p17-read-first", "a voter asks for votes before it has read its sockets")
def _p17() -> list[Replacement]:
    def tick(self: RaftNode) -> None:
        with patch.object(self.poller, "wait", nothing):
            _tick(self)

    return [(RaftNode, "tick", tick)]


# -- what is on disk before what is sent -----------------------------------------------------------


def _unsynced(self: RaftJournal) -> None:
    """``sync``, but for a journal that is muted."""
    if not getattr(self, "muted", False):
        _sync(self)


def _set_term_synced(self: RaftJournal, term: int, voted_for: str | None) -> None:
    muted, self.muted = getattr(self, "muted", False), False  # type: ignore[attr-defined]
    _set_term(self, term, voted_for)
    self.muted = muted  # type: ignore[attr-defined]


@mutant("p18-vote", "no fsync before a vote")
def _p18_vote() -> list[Replacement]:
    def set_term(self: RaftJournal, term: int, voted_for: str | None) -> None:
        self._meta = self._meta._replace(term=term, voted_for=voted_for)
        self._dirty = True

    return [(RaftJournal, "setCurrentTerm", set_term)]


@mutant("p18-ack", "no fsync before an acknowledgement")
def _p18_ack() -> list[Replacement]:
    def settle(self: RaftNode) -> None:
        self.journal.muted = True  # type: ignore[attr-defined]
        _settle(self)
        self.journal.muted = False  # type: ignore[attr-defined]

    return [(RaftNode, "settle", settle), (RaftJournal, "sync", _unsynced)]


@mutant("p18-own-match", "the leader counts its own entries before they are on its disk")
def _p18_own() -> list[Replacement]:
    def mute(half: Any) -> Any:  # noqa: ANN401
        def muted(self: RaftDriver) -> None:
            self._node.journal.muted = self._node.is_leader  # type: ignore[attr-defined]
            half(self)

        return muted

    return [
        (RaftDriver, "read", mute(RaftDriver.read)),
        (RaftDriver, "decide", mute(RaftDriver.decide)),
        (RaftJournal, "sync", _unsynced),
        (RaftJournal, "setCurrentTerm", _set_term_synced),
    ]


@mutant("p18-first-entry", "a new leader's own first entry counts in the tick that makes it leader")
def _p18_first() -> list[Replacement]:
    def tick(self: RaftNode) -> None:
        self.journal.muted = not self.is_leader  # type: ignore[attr-defined]
        _tick(self)
        self.journal.muted = False  # type: ignore[attr-defined]

    return [
        (RaftNode, "tick", tick),
        (RaftJournal, "sync", _unsynced),
        (RaftJournal, "setCurrentTerm", _set_term_synced),
    ]


@mutant("settled-term", "an acknowledgement is sent though the term has changed since")
def _settled() -> list[Replacement]:
    def settle(self: RaftNode) -> None:
        self.journal.sync()
        acks, self._acks = self._acks, {}
        for node, messages in acks.items():
            for message in messages:
                self.transport.send(node, message)

    return [(RaftNode, "settle", settle)]
