"""One voter: PySyncObj's decisions, with the guards that make them durable and safe (D4, P1-P18).

In each round of the driver, these must be on disk before something else happens:

* term and vote: before ``setCurrentTerm`` returns, so before a vote is asked for or given;
* entries from the leader: before the acknowledgement, which is held back until ``settle``;
* the leader's own entries: before they count as its own match, so before every tick;
* everything: before it is applied.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from quorate.common.files.data_folder import REPLACE
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.compaction import ReplicatedState
from quorate.quorum.raft.guards import SafetyViolation, conflict_index, filter_append
from quorate.quorum.raft.invariants import Progress, ProgressCheck
from quorate.quorum.raft.leadership import LeaderLease
from quorate.quorum.raft.member_voter import MemberVoter
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_frames import REGULAR, Message
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.snapshot_store import Received, SnapshotStore
from quorate.quorum.raft.storage.journal import NO_OP, RaftEntry, RaftJournal

log = logging.getLogger(__name__)

OnApplied = Callable[[Sequence[RaftEntry], Sequence[object]], None]
"""Called on the raft thread with a run of applied entries and the result of each, which is None for
a no-op. It must not raise.
"""

_APPLIED_PER_TICK: Final = 5_000
_WORTH_A_RUN: Final = 500
"""Applying more entries than this together does not make one of them cheaper."""
_REGULAR_HEAD: Final = bytes([REGULAR])


class RaftNode(MemberVoter):
    """A voter with all guards. Use all methods on the raft thread."""

    def __init__(
        self,
        options: RaftOptions,
        own: VoterNode,
        others: list[VoterNode],
        journal: RaftJournal,
        poller: DrivenPoller,
        transport: VoterTransport,
        snapshots: SnapshotStore,
        machine: ReplicatedState,
        admission: Admission,
    ) -> None:
        self._acks: dict[VoterNode, list[Message]] = {}
        self._answers_sent_s: float | None = None
        """The time, by the leader's clock, at which it sent the message that is being answered."""
        self._apply_at_s = float("-inf")
        self._took_part = False
        self._progress = ProgressCheck(own.voter_id)
        self.on_applied: OnApplied = lambda _entries, _results: None
        super().__init__(
            options, own, others, journal, poller, transport, snapshots, machine, admission
        )

    def recover(self) -> None:
        """Load the snapshot, apply what is committed, and only then start the clocks (P8).

        Raises:
            SnapshotCorrupt, SafetyViolation: what is on disk does not fit together.
        """
        self.load_snapshot()
        if self.commit_index > self.journal.last_index:
            raise SafetyViolation(
                f"entries up to {self.commit_index} are committed but the journal ends at "
                f"{self.journal.last_index}. {REPLACE}"
            )
        while self.last_applied < self.commit_index:
            self._SyncObj__applyLogEntries()
        # Not before: a set in the log about this voter may have been changed by a later one.
        self.recovered = True
        self.follow_voter_set()
        self.start_election_clock()

    # -- one round -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make one fsync for everything read from the sockets, then send the acknowledgements."""
        self.journal.sync()
        if not self._acks:
            return
        acks, self._acks = self._acks, {}
        for node, messages in acks.items():
            for message in messages:
                if message["term"] == self.term:
                    self.transport.send(node, message)

    def tick(self) -> None:
        """Run the library's tick: election, commit, apply, heartbeat."""
        if not self._took_part and self.admission.takes_part:
            self._take_part()
        if not self.is_leader:
            # First, because a voter that stands must know the newest voter set.
            self._SyncObj__applyLogEntries()
        self.journal.sync()
        if self.silence_is_over():
            # P17: the awaited heartbeat may lie in the sockets.
            self.poller.wait(0)
            self.settle()
            if self.silence_is_over():
                self.ask_pre_votes()
        self.forget_silent_leader()
        committed = self.commit_index
        self._skip_to_majority()
        # Those that count now: what becomes committed may be another voter set.
        matches = [self.match_index.get(node, 0) for node in self.other_voters]
        self.library_tick(may_stand=self.may_stand)
        self.stood()
        self._check_progress(committed, matches)
        first_voter_set = self.first_voter_set()
        if first_voter_set is not None:
            self.append_run([first_voter_set])
        self.tend_transfer()
        if self.is_leader and self.commit_index > committed:
            # After the replies, but long before the next heartbeat.
            self.next_send_s = min(self.next_send_s, clock_s() + self.options.commit_push_s)

    def _check_progress(self, committed: int, matches: Sequence[int]) -> None:
        """Stop if something is broken. ``committed`` is the commit index before the tick, and
        ``matches`` the ends of the other voters' logs that the leader knew then.
        """
        journal = self.journal
        now = Progress(
            self.term,
            self.commit_index,
            self.last_applied,
            journal.durable_index,
            self._snapshot_index,
        )
        self._progress.check(now)
        if self.is_leader and now.commit_index > committed:
            self._progress.check_majority(now.commit_index, [journal.durable_index, *matches])

    def send_new_entries(self) -> None:
        """Send what was appended, or has to be sent again, before our own fsync."""
        members = [*self.others, *self.observers]
        if not self.is_leader or not members:
            return
        last = self.journal.last_index
        first = self.journal.first_index
        behind = any(
            first < self.next_index[node] <= last
            for node in members
            if self.transport.is_connected(node.voter_id)
        )
        if behind:
            self.send_append_entries()

    def wait_s(self) -> float:
        """Return for how long the voter only has to read sockets."""
        if self.last_applied < self.commit_index:
            wake_at = min(self._apply_at_s, self.election_deadline_s)
            rest_s = max(0.0, wake_at - clock_s()) if self._puts_off_applying() else 0.0
            return min(rest_s, self.options.heartbeat_s)
        if self.is_leader and not self.others and self.commit_index < self.journal.last_index:
            return 0.0
        if not self.is_leader and not self._is_candidate():
            # A deadline means nothing to it, and may have passed long ago.
            return self.options.heartbeat_s
        wake_at = self.next_send_s if self.is_leader else self.election_deadline_s
        return float(min(max(0.0, wake_at - clock_s()), self.options.heartbeat_s))

    def append_run(self, commands: Sequence[bytes | None]) -> int | None:
        """Append one entry per command to our log; return the index of the first, or None if we do
        not lead.

        A command of None is an entry that changes nothing: a barrier for linearizable reads. Call
        this between the tick and ``send_new_entries``: an entry counts as our own match in the next
        tick, before which it is synced (P18). Commands are never forwarded (P15).
        """
        if not self.is_leader:
            return None
        first, term = self.journal.last_index + 1, self.term
        self.journal.extend(
            [
                (NO_OP if command is None else _REGULAR_HEAD + command, index, term)
                for index, command in enumerate(commands, first)
            ]
        )
        return first

    def close(self) -> None:
        """Release files and sockets, once nothing runs this voter any more."""
        self.transport.destroy()
        self._snapshots.close()
        self.journal.close()
        self.poller.close()

    # -- overridden: what must be durable, and when ----------------------------------------------

    def _SyncObj__onBecomeLeader(self) -> None:
        log.info("elected leader in term %d", self.term)
        self.lease = LeaderLease()
        super()._SyncObj__onBecomeLeader()
        # The library may count this no-op as our own match in this very tick (P18).
        self.journal.sync()

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply what is committed and on disk in one run, but so little that the sockets are read
        soon.

        An error that this raises is fatal (P6).
        """
        self.journal.sync()
        count = min(self.commit_index - self.last_applied, _APPLIED_PER_TICK)
        if count > 0 and not self._puts_off_applying():
            self._apply(self.journal.slice(self.last_applied + 1, count))
            self._apply_at_s = clock_s() + self.options.apply_pause_s
        return False  # The library would send a heartbeat at once.

    def _puts_off_applying(self) -> bool:
        """Return whether this follower applied just now, and has not much to apply yet."""
        return (
            not self.is_leader
            and self.recovered
            and self.leader is not None
            and self.commit_index - self.last_applied < _WORTH_A_RUN
            and not self.is_about_to_campaign
            and clock_s() < min(self._apply_at_s, self.election_deadline_s)
        )

    def _apply(self, entries: list[RaftEntry]) -> None:
        """Give the commands as bytes to the one state machine: nothing is unpickled."""
        commands = [(index, command[1:]) for command, index, _ in entries if command[0] == REGULAR]
        results = self._machine.apply_run(commands)
        if len(results) < len(entries):
            of_regular = iter(results)
            results = [next(of_regular) if e[0][0] == REGULAR else None for e in entries]
        self.last_applied = entries[-1][1]
        self.count_applied_bytes(sum([len(command) for command, _, _ in entries]))
        self.keep_voter_set()
        self.on_applied(entries, results)
        self.follow_voter_set()

    def _adopt(self, snapshot: Received) -> None:
        super()._adopt(snapshot)
        self.follow_voter_set()

    def _checkCommandsToApply(self) -> None:
        """Do nothing: no command comes by the library's queue, see ``append_run``."""

    def _skip_to_majority(self) -> None:
        """Let the library look only at the last entry that a majority has, and at none before it.

        By log matching the earlier ones are on the same majority. The library itself then finds
        that entry committed; where it could not, because of its term, nothing is skipped.
        """
        if not self.is_leader:
            return
        matches = [self.journal.last_index, *(self.match_index[n] for n in self.other_voters)]
        majority = sorted(matches, reverse=True)[len(matches) // 2]
        if majority > self.commit_index + 1 and self.journal.term_at(majority) == self.term:
            self._SyncObj__raftCommitIndex = majority - 1

    def _SyncObj__sendNextNodeIdx(
        self,
        node: VoterNode,
        reset: bool = False,
        nextNodeIdx: int | None = None,
        success: bool = False,
    ) -> None:
        """Hold the acknowledgement back until our log is on disk, and stamp the term (P5, P18)."""
        index = self.journal.last_index + 1 if nextNodeIdx is None else nextNodeIdx
        if reset and self._snapshots.checking:
            # The missing entries have come in a snapshot; asking for them would bring it again.
            reset = False
        if success and self.verified_index is not None:
            index = self.verified_index + 1
        elif reset and nextNodeIdx is not None:
            index = conflict_index(self.journal, nextNodeIdx, self.commit_index)
        waiting = self._acks.setdefault(node, [])
        answer: Message = {
            "type": "next_node_idx",
            "term": self.term,
            "next_node_idx": index,
            "reset": reset,
            "success": success,
        }
        if self._answers_sent_s is not None:
            answer["sent_s"] = self._answers_sent_s
        if success and waiting and waiting[-1]["success"] and waiting[-1]["term"] == self.term:
            answer = _newest_of_both(waiting.pop(), answer)
        waiting.append(answer)

    def _take_part(self) -> None:
        self._took_part = True
        self.begin_taking_part()

    # -- overridden: messages --------------------------------------------------------------------

    def _SyncObj__onMessageReceived(self, node: VoterNode, message: Message) -> None:
        if not self.admission.takes_part:
            return
        if not self._took_part:
            self._take_part()
        if message["type"] == "append_entries":
            self._on_append_entries(node, message)
        elif message["type"] == "next_node_idx":
            self._on_next_node_idx(node, message)
        elif not self.on_election_message(node, message):
            super()._SyncObj__onMessageReceived(node, message)

    def _on_append_entries(self, node: VoterNode, message: Message) -> None:
        if message["term"] < self.term:
            # A leader of an earlier term: our term in the answer tells it so.
            self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)
            return
        self.heard_leader()
        self.verified_index = None
        if "prevLogIdx" in message:
            filtered = filter_append(message, self.journal, self.commit_index)
            message, self.verified_index = filtered
            if self.verified_index is None:
                message = {**message, "commit_index": 0}
            else:
                message = self._append_all_but_last(message)
        else:
            # P3: a snapshot proves nothing about the entries in our log.
            message = {**message, "commit_index": 0}
        answered = len(self._acks.get(node, ()))
        self._answers_sent_s = message.get("sent_s")
        super()._SyncObj__onMessageReceived(node, message)
        if "prevLogIdx" not in message and len(self._acks.get(node, ())) == answered:
            # The leader must see that we are alive while it sends a long snapshot.
            self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)
        self._answers_sent_s = None
        if self.leader == node:
            # What is committed is on the leader's disk: it counts its own entries only then (P18).
            self.promises.has(node.voter_id, self.term, self.commit_index)

    def _append_all_but_last(self, message: Message) -> Message:
        """Append entries that just follow our log in one run. The library is left the last one to
        add.
        """
        entries: list[RaftEntry] = message["entries"]
        if len(entries) < 2 or message["prevLogIdx"] != self.journal.last_index:
            return message
        self.journal.extend(entries[:-1])
        _, index, term = entries[-2]
        return {**message, "prevLogIdx": index, "prevLogTerm": term, "entries": entries[-1:]}

    def _on_next_node_idx(self, node: VoterNode, message: Message) -> None:
        """Handle an acknowledgement. Only answers of this term count (P5); entries under way are
        not sent again.
        """
        if message["term"] > self.term:
            self.adopt_term(message["term"])
        if not self.is_leader or message["term"] != self.term or node not in self.next_index:
            return
        if not self.admission.counts(node.voter_id):
            return
        if message["success"] and message["next_node_idx"] > self.journal.last_index + 1:
            raise SafetyViolation(f"voter {node.id} acknowledges entries that were never written")
        limited = min(message["next_node_idx"], self.journal.last_index + 1)
        under_way = self.next_index[node]
        super()._SyncObj__onMessageReceived(node, {**message, "next_node_idx": limited})
        if message["reset"]:
            # P7: of several messages under way the first tells where to go back to, the later ones,
            # which lie beyond the follower's log, only where that ends.
            self.next_index[node] = min(under_way, limited)
        elif message["success"]:
            self.next_index[node] = max(under_way, limited)
            self.promises.has(node.voter_id, self.term, limited - 1)
        if "sent_s" in message:
            self.lease.answered(node, message["sent_s"], clock_s())


def _newest_of_both(earlier: Message, later: Message) -> Message:
    """Return one acknowledgement in place of two."""
    both = {**earlier, **later}
    for key in ("next_node_idx", "sent_s"):
        if key in both:
            both[key] = max(m[key] for m in (earlier, later) if key in m)
    return both
