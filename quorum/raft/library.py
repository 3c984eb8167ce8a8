"""PySyncObj's private state, typed and in one place: everything that the guards read and set.

Nothing here decides anything. Election, replication and commit are the library's (D4).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf

from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.storage.journal import RaftEntry, RaftJournal

FOLLOWER: Final = 0
LEADER: Final = 2

_globals_lock = threading.Lock()


@contextmanager
def _library_globals(**replacements: Callable[[Any], Any]) -> Iterator[None]:
    """Replace module globals of the library, by which it makes journal and poller, during a
    construction.
    """
    with _globals_lock:
        before = {name: getattr(library, name) for name in replacements}
        try:
            for name, value in replacements.items():
                setattr(library, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(library, name, value)


class LibraryVoter(SyncObj):  # type: ignore[misc]  # the library is untyped
    """A ``SyncObj`` over our journal, poller and transport."""

    def __init__(
        self,
        own: VoterNode,
        others: list[VoterNode],
        options: RaftOptions,
        journal: RaftJournal,
        poller: DrivenPoller,
        transport: VoterTransport,
    ) -> None:
        self.own = own
        self.others = others
        """The other voters."""
        self.observers: list[VoterNode] = []
        """Members that receive the log and are not counted. The library has them as read-only
        nodes.
        """
        self.journal = journal
        self.poller = poller
        self.transport = transport
        self._SyncObj__newAppendEntriesTime = 0.0  # Read by the library before it is set.
        with _library_globals(
            createJournal=lambda _file: journal, createPoller=lambda _type: poller
        ):
            super().__init__(own, others, conf=_library_conf(options), transport=transport)
        self._SyncObj__needLoadDumpFile = False

    # -- state -------------------------------------------------------------------------

    @property
    def state(self) -> int:
        return int(self._SyncObj__raftState)

    @property
    def is_leader(self) -> bool:
        return self.state == LEADER

    @property
    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def leader(self) -> VoterNode | None:
        return cast("VoterNode | None", self._SyncObj__raftLeader)

    @property
    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    @commit_index.setter
    def commit_index(self, index: int) -> None:
        self._SyncObj__raftCommitIndex = index
        self.journal.setRaftCommitIndex(index)

    @property
    def last_applied(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    @last_applied.setter
    def last_applied(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    @property
    def noop_index(self) -> int:
        """The index of the no-op with which this voter began its last leadership, or 0 if it never
        led.
        """
        return int(self._SyncObj__noopIDx or 0)

    # -- what it knows of the others -------------------------------------------------------------

    @property
    def other_voters(self) -> set[VoterNode]:
        """The voters whose match index the library counts."""
        return self._SyncObj__otherNodes

    @property
    def next_index(self) -> dict[VoterNode, int]:
        return cast("dict[VoterNode, int]", self._SyncObj__raftNextIndex)

    @property
    def match_index(self) -> dict[VoterNode, int]:
        return cast("dict[VoterNode, int]", self._SyncObj__raftMatchIndex)

    @property
    def last_response_s(self) -> dict[VoterNode, float]:
        """Return the time of each voter's last answer, on the library's monotonic clock."""
        return cast("dict[VoterNode, float]", self._SyncObj__lastResponseTime)

    def set_members(self, voters: list[VoterNode], observers: list[VoterNode]) -> None:
        """Count these voters from now on, and send the log to voters and observers."""
        self.others, self.observers = voters, observers
        self._SyncObj__otherNodes: set[VoterNode] = set(voters)
        self._SyncObj__readonlyNodes = set(observers)

    def meet(self, node: VoterNode) -> None:
        """Add a new member: nothing is known of its log."""
        self.next_index[node] = self.journal.last_index + 1
        self.match_index[node] = 0
        self.last_response_s[node] = clock_s()

    def forget(self, node: VoterNode) -> None:
        """Remove a member. Its acknowledgements must not count for another one with its id."""
        self._SyncObj__connectedNodes.discard(node)
        for known in (self.next_index, self.match_index, self.last_response_s):
            known.pop(node, None)
        if self.leader == node:
            self._SyncObj__raftLeader = None

    # -- its timers ------------------------------------------------------------------------------

    @property
    def election_deadline_s(self) -> float:
        return float(self._SyncObj__raftElectionDeadline)

    @election_deadline_s.setter
    def election_deadline_s(self, deadline: float) -> None:
        self._SyncObj__raftElectionDeadline = deadline

    def random_election_timeout_s(self) -> float:
        return float(self._SyncObj__generateRaftTimeout())

    @property
    def next_send_s(self) -> float:
        """Return the time at which the leader sends its next heartbeat."""
        return float(self._SyncObj__newAppendEntriesTime)

    @next_send_s.setter
    def next_send_s(self, at: float) -> None:
        """Set the time at which the leader sends its next heartbeat."""
        self._SyncObj__newAppendEntriesTime = at

    # -- what it does when told ------------------------------------------------------------------

    def library_tick(self, *, may_stand: bool) -> None:
        """Run one tick. Without ``may_stand`` the library does not stand, whatever its deadline."""
        held = self.election_deadline_s
        self.election_deadline_s = 0.0 if may_stand else float("inf")
        self._onTick(0)
        if self.election_deadline_s == float("inf"):
            self.election_deadline_s = held

    def _SyncObj__getEntries(
        self, fromIDx: int | None, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[RaftEntry]:
        """Return entries as the library does, which visits all of them one by one to see if they
        are few.
        """
        first = self.journal.first_index
        if fromIDx is None or fromIDx < first:
            return []
        start = fromIDx - first
        entries = self.journal[start : None if count is None else start + count]
        if maxSizeBytes is None or sum([len(entry[0]) for entry in entries]) < maxSizeBytes:
            return entries
        return super()._SyncObj__getEntries(fromIDx, count, maxSizeBytes)  # type: ignore[no-any-return]

    def send_append_entries(self) -> None:
        self._SyncObj__sendAppendEntries()

    def use_serializer(self, serializer: object) -> None:
        self._SyncObj__serializer = serializer


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
