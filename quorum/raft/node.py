"""One voter: PySyncObj's decisions, with the guards that make them durable and safe (D4, P1-P18).

What must be on disk before what is sent, per round of the driver:

* term and vote: before ``setCurrentTerm`` returns, so before a vote is asked for or given;
* entries from the leader: before the acknowledgement, which is held back until ``settle``;
* the leader's own entries: before they count as its own match, so before every tick;
* everything: before it is applied.
"""

import logging
import random
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from pysyncobj import FAIL_REASON, SyncObjConf

from quorum.raft.frames import NO_OP_KIND, REGULAR, Message
from quorum.raft.guards import (
    SafetyViolation,
    Vote,
    conflict_index,
    filter_append,
    grants_pre_vote,
)
from quorum.raft.journal import LmdbJournal
from quorum.raft.library import LibraryVoter, clock_s
from quorum.raft.options import RaftOptions
from quorum.raft.poller import DrivenPoller
from quorum.raft.snapshot_file import SnapshotPosition
from quorum.raft.snapshots import SnapshotStore
from quorum.raft.transport import VoterNode, VoterTransport

log = logging.getLogger(__name__)

OnCommitted = Callable[[Any, int], None]
"""Called on the raft thread with the result of apply and a ``FAIL_REASON``; must not raise."""

SUCCESS: Final[int] = FAIL_REASON.SUCCESS
_APPLIED_PER_TICK: Final = 5_000


class ReplicatedState(Protocol):
    """The state machine. ``apply`` is deterministic; whatever it raises ends the process (P6)."""

    def apply(self, index: int, command: bytes) -> object: ...
    def snapshot_chunks(self) -> Iterable[bytes]:
        """Encodes the state of this moment; read later, in another thread."""

    def install(self, index: int, chunks: Iterable[bytes]) -> None:
        """Replace the state by a snapshot of ``index``."""


class RaftNode(LibraryVoter):
    """All methods on the raft thread."""

    def __init__(
        self,
        options: RaftOptions,
        journal: LmdbJournal,
        poller: DrivenPoller,
        transport: VoterTransport,
        own: VoterNode,
        others: list[VoterNode],
        snapshots: SnapshotStore,
        machine: ReplicatedState,
    ) -> None:
        self._options = options
        self._snapshots = snapshots
        self._machine = machine
        self._acks: dict[VoterNode, list[Message]] = {}
        self._verified_index: int | None = None
        self._votes: set[VoterNode] = set()
        self._pre_votes: set[VoterNode] = set()
        self._pre_vote_term = 0
        self._leader_heard_s = float("-inf")
        self._may_stand = False
        self._bytes_since_snapshot = 0
        self._snapshot_index = 0
        super().__init__(own, others, _library_conf(options), journal, poller, transport)
        self.use_serializer(snapshots)

    # -- start -----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Load the snapshot, apply what is committed, and only then start the clocks (P8).

        Raises:
            SnapshotCorrupt, SafetyViolation: what is on disk does not fit together.
        """
        position = self._snapshots.position()
        if position is None and self.journal.first_index > 1:
            raise SafetyViolation(
                f"the journal begins at {self.journal.first_index} but there is no snapshot: "
                "restore the data folder, or replace this voter"
            )
        if position is not None:
            self._load_snapshot(position)
        while self.last_applied < self.commit_index:
            self._SyncObj__applyLogEntries()
        timeout_s = self.random_election_timeout_s() if self.others else 0.0
        self.election_deadline_s = clock_s() + timeout_s

    def _load_snapshot(self, position: SnapshotPosition) -> None:
        """Never drops what the journal holds behind the snapshot (P1)."""
        if self.journal.first_index > position.last_index:
            raise SafetyViolation(
                f"the journal begins at {self.journal.first_index}, behind snapshot "
                f"{position.last_index}: entries between are lost, replace this voter"
            )
        self._machine.install(position.last_index, self._snapshots.chunks())
        if self.journal.term_at(position.last_index) != position.last_term:
            self.journal.reset_to(*position)
        self.last_applied = position.last_index
        self.commit_index = max(self.commit_index, position.last_index)
        self._snapshot_index = position.last_index

    # -- one round -------------------------------------------------------------------------------

    def settle(self) -> None:
        """One fsync for all that was read from the sockets, then the acknowledgements."""
        self.journal.sync()
        if not self._acks:
            return
        acks, self._acks = self._acks, {}
        for node, messages in acks.items():
            for message in messages:
                if message["term"] == self.term:
                    self.transport.send(node, message)

    def tick(self) -> None:
        """The library's tick: election, commit, apply, heartbeat, proposals into the log."""
        self.journal.sync()
        if self._silence_is_over():
            # P17: what lies in the sockets may be the heartbeat that was waited for.
            self.poller.wait(0)
            self.settle()
            if self._silence_is_over():
                self._ask_pre_votes()
        committed = self.commit_index
        self._onTick(0)
        self._may_stand = False
        if self.is_leader and self.commit_index > committed:
            # Not in front of the replies, but long before the next heartbeat.
            self.next_send_s = min(self.next_send_s, clock_s() + self._options.commit_push_s)

    def send_new_entries(self) -> None:
        """What was appended, or has to be sent again, goes out before our own fsync."""
        if not self.is_leader or not self.others:
            return
        last = self.journal.last_index
        first = self.journal.first_index
        behind = any(
            first < self.next_index[node] <= last
            for node in self.others
            if self.transport.is_connected(node.voter_id)
        )
        if behind:
            self.send_append_entries()

    def wait_s(self) -> float:
        """How long there is nothing to do but to read sockets."""
        if self.last_applied < self.commit_index:
            return 0.0
        if self.is_leader and not self.others and self.commit_index < self.journal.last_index:
            return 0.0
        wake_at = self.next_send_s if self.is_leader else self.election_deadline_s
        return float(min(max(0.0, wake_at - clock_s()), self._options.heartbeat_s))

    def propose(self, command: bytes, on_committed: OnCommitted) -> None:
        """Append a regular entry in the coming tick, if this voter leads; else it is refused."""
        self._applyCommand(command, on_committed, REGULAR)

    def propose_no_op(self, on_committed: OnCommitted) -> None:
        """As ``propose``, an entry that changes nothing: a barrier for linearizable reads."""
        self._applyCommand(b"", on_committed, NO_OP_KIND)

    def close(self) -> None:
        """Release files and sockets, once nothing runs this voter any more."""
        self.transport.destroy()
        self._snapshots.close()
        self.journal.close()
        self.poller.close()

    # -- leadership, as others may rely on it ----------------------------------------------------

    @property
    def leads_caught_up(self) -> bool:
        """It leads, and everything committed by earlier leaders is applied here."""
        return self.is_leader and self.last_applied >= self.noop_index

    def majority_heard_s(self) -> float:
        """When a majority, this voter included, was last known to follow this leader."""
        if not self.others:
            return clock_s()
        heard = sorted((self.last_response_s[node] for node in self.others), reverse=True)
        return float(heard[(len(self.others) + 1) // 2 - 1])

    # -- overridden: what must be durable, and when ----------------------------------------------

    def _SyncObj__onBecomeLeader(self) -> None:
        log.info("elected leader in term %d", self.term)
        super()._SyncObj__onBecomeLeader()
        # The library may count this no-op as our own match in this very tick (P18).
        self.journal.sync()

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply what is committed and on disk, so much at a time that the sockets are read soon."""
        self.journal.sync()
        committed = self._SyncObj__raftCommitIndex
        self._SyncObj__raftCommitIndex = min(committed, self.last_applied + _APPLIED_PER_TICK)
        try:
            return bool(super()._SyncObj__applyLogEntries())
        finally:
            self._SyncObj__raftCommitIndex = committed

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:
        """Bytes to the one dispatcher: nothing is unpickled. Whatever this raises is fatal (P6)."""
        if command[0] != REGULAR:
            return None
        self._bytes_since_snapshot += len(command)
        return self._machine.apply(self.last_applied + 1, command[1:])

    def _checkCommandsToApply(self) -> None:
        """Proposals go into our own log or nowhere: the library would forward them (P15)."""
        if self.is_leader:
            super()._checkCommandsToApply()
            return
        queue = self._SyncObj__commandsQueue
        while queue._FastQueue__queue:
            _, on_committed = queue.get_nowait()
            on_committed(None, FAIL_REASON.NOT_LEADER)

    def _SyncObj__sendNextNodeIdx(
        self,
        node: VoterNode,
        reset: bool = False,
        nextNodeIdx: int | None = None,
        success: bool = False,
    ) -> None:
        """Hold the acknowledgement back until our log is on disk; stamp the term (P5, P18)."""
        index = self.journal.last_index + 1 if nextNodeIdx is None else nextNodeIdx
        if success and self._verified_index is not None:
            index = self._verified_index + 1
        elif reset and nextNodeIdx is not None:
            index = conflict_index(self.journal, nextNodeIdx, self.commit_index)
        waiting = self._acks.setdefault(node, [])
        if success and waiting and waiting[-1]["success"] and waiting[-1]["term"] == self.term:
            waiting[-1]["next_node_idx"] = max(waiting[-1]["next_node_idx"], index)
            return
        waiting.append(
            {
                "type": "next_node_idx",
                "term": self.term,
                "next_node_idx": index,
                "reset": reset,
                "success": success,
            }
        )

    # -- overridden: snapshots -------------------------------------------------------------------

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """A snapshot from the leader is complete, checked and in its place: make it our state."""
        position = self._snapshots.received
        self._verified_index = position.last_index
        if position.last_index <= self.last_applied:
            return
        log.info("installing snapshot %d of the leader", position.last_index)
        self._machine.install(position.last_index, self._snapshots.chunks())
        if self.journal.term_at(position.last_index) != position.last_term:
            self.journal.reset_to(*position)
        self.last_applied = position.last_index
        self.commit_index = max(self.commit_index, position.last_index)
        self._snapshot_index = position.last_index
        self._bytes_since_snapshot = 0

    def _SyncObj__tryLogCompaction(self) -> None:
        """Snapshot by size; the journal is compacted only once the snapshot is durable (P1)."""
        written = self._snapshots.finished()
        if written is not None:
            self._snapshot_index = max(self._snapshot_index, written.last_index)
            # The library wants two entries at least.
            keep_from = written.last_index - max(1, self._options.retained_entries)
            self.journal.deleteEntriesTo(keep_from - self.journal.first_index)
            log.info(
                "snapshot %d written, the journal begins at %d",
                written.last_index,
                self.journal.first_index,
            )
        entries = self.last_applied - self._snapshot_index
        if self._snapshots.writing or not (
            entries >= self._options.snapshot_max_entries
            or self._bytes_since_snapshot >= self._options.snapshot_max_bytes
        ):
            return
        term = self.journal.term_at(self.last_applied)
        if term is None:
            raise SafetyViolation(f"applied entry {self.last_applied} is not in the journal")
        self._bytes_since_snapshot = 0
        position = SnapshotPosition(self.last_applied, term)
        self._snapshots.begin_writing(position, self._machine.snapshot_chunks())

    def _SyncObj__sendAppendEntries(self) -> None:
        super()._SyncObj__sendAppendEntries()
        sent, self._snapshots.sent = self._snapshots.sent, {}
        for node, position in sent.items():
            self.next_index[node] = position.last_index + 1

    # -- overridden: messages --------------------------------------------------------------------

    def _SyncObj__onMessageReceived(self, node: VoterNode, message: Message) -> None:
        match message["type"]:
            case "append_entries":
                self._on_append_entries(node, message)
            case "next_node_idx":
                self._on_next_node_idx(node, message)
            case "pre_vote":
                self._on_pre_vote(node, message)
            case "response_pre_vote":
                self._on_pre_vote_granted(node, message)
            case "response_vote":
                if message["term"] == self.term and node not in self._votes:
                    self._votes.add(node)
                    super()._SyncObj__onMessageReceived(node, message)
            case _:
                super()._SyncObj__onMessageReceived(node, message)

    def _on_append_entries(self, node: VoterNode, message: Message) -> None:
        if message["term"] < self.term:
            return
        self._leader_heard_s = clock_s()
        self._may_stand = False
        self._verified_index = None
        if "prevLogIdx" in message:
            filtered = filter_append(message, self.journal, self.commit_index)
            message, self._verified_index = filtered
            if self._verified_index is None:
                message = {**message, "commit_index": 0}
        else:
            # P3: a snapshot proves nothing about the entries in our log.
            message = {**message, "commit_index": 0}
        answered = len(self._acks.get(node, ()))
        super()._SyncObj__onMessageReceived(node, message)
        if "prevLogIdx" not in message and len(self._acks.get(node, ())) == answered:
            # The leader must see that we are alive while it sends a long snapshot.
            self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)

    def _on_next_node_idx(self, node: VoterNode, message: Message) -> None:
        """Only answers of this term count (P5); what is under way already is not sent again."""
        if not self.is_leader or message["term"] != self.term:
            return
        if message["success"] and message["next_node_idx"] > self.journal.last_index + 1:
            raise SafetyViolation(f"voter {node.id} acknowledges entries that were never written")
        limited = min(message["next_node_idx"], self.journal.last_index + 1)
        under_way = self.next_index[node]
        super()._SyncObj__onMessageReceived(node, {**message, "next_node_idx": limited})
        if message["success"] and not message["reset"]:
            self.next_index[node] = max(under_way, limited)

    # -- pre-vote (P8) ---------------------------------------------------------------------------

    def _silence_is_over(self) -> bool:
        """The leader has been silent for long enough to ask for pre-votes."""
        return (
            bool(self.others)
            and not self.is_leader
            and not self._may_stand
            and clock_s() > self.election_deadline_s
        )

    def _SyncObj__onNodeDisconnected(self, node: VoterNode) -> None:
        """A closed connection says that the leader is gone sooner than its silence does."""
        super()._SyncObj__onNodeDisconnected(node)
        if not self.is_leader and self.leader == node:
            self._leader_heard_s = float("-inf")
            spread_s = self._options.election_timeout_min_s / 3
            soon = clock_s() + random.uniform(0, spread_s)
            self.election_deadline_s = min(self.election_deadline_s, soon)

    def _own_vote(self) -> Vote:
        last = self.journal[-1]
        return Vote(self.term, last[2], last[1])

    def _ask_pre_votes(self) -> None:
        """Ask who would vote for us, before a term is spent on it."""
        self.election_deadline_s = clock_s() + self.random_election_timeout_s()
        if clock_s() - self._leader_heard_s > 2 * self._options.election_timeout_max_s:
            # Not at the first silence: on a busy machine that is mostly our own.
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

    def _on_pre_vote(self, node: VoterNode, message: Message) -> None:
        asked = Vote(message["term"], message["last_log_term"], message["last_log_index"])
        now = clock_s()
        heard = self.majority_heard_s() if self.is_leader else self._leader_heard_s
        recently = now - heard < self._options.election_timeout_min_s
        if grants_pre_vote(asked, self._own_vote(), leader_heard_recently=recently):
            self.transport.send(node, {"type": "response_pre_vote", "term": message["term"]})

    def _on_pre_vote_granted(self, node: VoterNode, message: Message) -> None:
        if self.is_leader or not message["term"] == self._pre_vote_term == self.term:
            return
        self._pre_votes.add(node)
        if len(self._pre_votes) + 1 > (len(self.others) + 1) / 2:
            self._pre_votes = set()
            self._votes = set()
            self._may_stand = True
            self.election_deadline_s = 0.0


def _library_conf(options: RaftOptions) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=8 << 20,
        appendEntriesPeriod=options.heartbeat_s,
        raftMinTimeout=options.election_timeout_min_s,
        raftMaxTimeout=options.election_timeout_max_s,
        leaderFallbackTimeout=options.leader_fallback_s,
        connectionTimeout=max(3.0, options.election_timeout_max_s),
        connectionRetryTime=0.2,
        commandsWaitLeader=False,
        commandsQueueSize=0,
        dynamicMembershipChange=False,
        useFork=False,
    )
