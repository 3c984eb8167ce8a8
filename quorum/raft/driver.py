"""The thread that drives a voter: read, make durable, decide, send, make durable (P16, P17, P18).

Each round reads the sockets; makes one fsync and acknowledges what the leader sent; takes the
proposals; lets the library's tick commit, apply and append. New entries go out to the followers,
and only then is our own log synced, in parallel with theirs. Nothing waits while there is work, and
an arriving proposal ends the wait.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from quorate.quorum.raft.leadership import NEVER
from quorate.quorum.raft.leaving import LeavesQuorum
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.storage.journal import RaftEntry

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 100_000
"""The number of proposals without an outcome; more are refused at once."""

_TEND_S: Final = 0.1
_ROUND_BYTES: Final = 8 << 20
"""About the most bytes that are appended per round: a sync of more would delay heartbeats."""


class ProposalOutcome(IntEnum):
    """The outcome of a proposal."""

    COMMITTED = 1
    NOT_LEADER = 2
    """The proposal was surely not applied."""
    UNKNOWN = 3
    """This voter lost its leadership meanwhile, so the proposal may or may not be applied."""


class ProposalOwner(Protocol):
    """Gets the outcome of its proposals, outside of the raft thread."""

    def completed(self, settled: "Settled") -> None: ...


class ProposalRun(msgspec.Struct, eq=False):
    """Commands of one owner that go into the log together, one behind the other."""

    commands: Sequence[bytes | None]
    """The commands; None is a no-op, as a barrier."""
    owner: ProposalOwner
    request_ids: Sequence[int] = ()
    """The ids by which the owner knows the commands."""
    settled: int = 0
    """The number of commands, from the front of the queue, that have an outcome."""
    first_index: int = 0
    """The index of the first command's entry, once they are in the log; its term is ``term``."""
    term: int = 0

    def appended(self, first_index: int, term: int) -> None:
        """Note where the commands are in the log."""
        assert not self.first_index, "a run is appended once"
        self.first_index = first_index
        self.term = term

    def settle(self, results: Sequence[Any], outcome: ProposalOutcome) -> "Settled":
        """Give the next commands, as many as there are results, their outcome."""
        start = self.settled
        self.settled += len(results)
        assert self.settled <= len(self.commands), "more outcomes than commands"
        return Settled(self, start, results, outcome)


class Settled(NamedTuple):
    """Proposals of a run, from number ``start`` on, that now have an outcome, the same for all."""

    run: ProposalRun
    start: int
    results: Sequence[Any]
    """The result of apply for each, or None for each that is not committed."""
    outcome: ProposalOutcome


class RaftLeadership(NamedTuple):
    """The leader, as this voter knows it."""

    leads: bool
    """Whether this voter leads and has applied everything that earlier leaders committed."""
    leader_id: int
    """The leader's voter id, or 0 if it is unknown."""
    term: int


class RaftDriver:
    """Runs a ``RaftNode``; proposals and questions come from other threads.

    A round is ``read`` and ``decide``; ``start`` begins a thread that does nothing else.
    """

    def __init__(
        self,
        node: RaftNode,
        on_round: Callable[[list[Settled], RaftLeadership], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Create the driver. ``on_round`` is called on the raft thread when a round changed
        something.

        ``on_failed`` is called once, when the voter cannot go on: the process must end.
        """
        self._node = node
        self._on_round = on_round
        self._on_failed = on_failed
        self._queue: deque[ProposalRun] = deque()
        self._submitted = 0  # Counted by the thread that submits.
        self._finished = 0  # Counted on the raft thread.
        self._calls: deque[tuple[Callable[[RaftNode], Any], Future[Any]]] = deque()
        self._in_log: deque[ProposalRun] = deque()  # In the order of their entries.
        self._completed: list[Settled] = []
        self._leadership = RaftLeadership(False, 0, 0)
        self._applied = 0
        self._stopping = False
        self._tend_at = 0.0
        node.on_applied = self._take_applied
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)
        self.sole_leader_until_s = NEVER
        """Up to this time this voter is known to have been the only leader. Read it from any
        thread.
        """

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; everything acknowledged is on disk. It blocks for one round."""
        self._stopping = True
        self._node.poller.wake()
        self._thread.join()

    def submit(self, run: ProposalRun) -> bool:
        """Hand in proposals; return False if too many are waiting. Always call it from the same
        thread.
        """
        if self._submitted - self._finished > MAX_QUEUED or self._stopping:
            return False
        self._submitted += len(run.commands)
        self._queue.append(run)
        self._node.poller.wake()
        return True

    def call(self, function: Callable[[RaftNode], T]) -> "Future[T]":
        """Run ``function`` on the raft thread, between two rounds. From any thread."""
        future: Future[T] = Future()
        self._calls.append((function, future))
        self._node.poller.wake()
        return future

    # -- the raft thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.read()
                self.decide()
            self._node.journal.keep_promises()
        except BaseException as error:
            if not isinstance(error, LeavesQuorum):
                log.critical("the voter cannot go on", exc_info=True)
            self._stopping = True
            self._on_failed(error)
        finally:
            for _, future in self._calls:
                future.cancel()
            self._node.transport.destroy()

    def read(self) -> None:
        """Do the first half of a round: wait, read the sockets, make durable and acknowledge."""
        node = self._node
        has_work = self._calls or (self._queue and not node.hands_over)
        node.poller.wait(0 if has_work else node.wait_s())
        node.settle()

    def decide(self) -> None:
        """Do the second half: the library's tick, proposals, sending, telling the event loop, our
        own fsync.
        """
        node = self._node
        node.tick()
        self._append()
        node.send_new_entries()
        self._publish()
        node.journal.sync()
        self._answer_calls()
        now = clock_s()
        if now >= self._tend_at:
            self._tend_at = now + _TEND_S
            node.transport.tend(now)

    def _append(self) -> None:
        """Append all waiting proposals as entries, in the order in which they came."""
        size = 0
        while self._queue and size < _ROUND_BYTES and not self._node.hands_over:
            run = self._queue.popleft()
            first = self._node.append_run(run.commands)
            if first is None:
                self._abandon(run, ProposalOutcome.NOT_LEADER)
                continue
            run.appended(first, self._node.term)
            self._in_log.append(run)
            size += sum([len(command) for command in run.commands if command is not None])

    def _take_applied(self, entries: Sequence[RaftEntry], results: Sequence[object]) -> None:
        """Settle the proposals whose entries were applied; on a follower there are none."""
        first, end = entries[0][1], entries[-1][1] + 1
        while self._in_log:
            run = self._in_log[0]
            start = run.first_index + run.settled
            if not first <= start < end:
                return
            at = start - first
            until = at + min(len(run.commands) - run.settled, end - start)
            # Terms only grow along the log, so the last entry's term answers for all.
            is_ours = entries[until - 1][2] == run.term
            if not is_ours:
                until = at + sum(term == run.term for _, _, term in entries[at:until])
            if until > at:
                self._settle(run, results[at:until], ProposalOutcome.COMMITTED)
            if not is_ours:
                # Another leader's entry took the place of the next, so all behind it are gone.
                self._abandon(run, ProposalOutcome.NOT_LEADER)
            if run.settled == len(run.commands):
                self._in_log.popleft()

    def _abandon(self, run: ProposalRun, outcome: ProposalOutcome) -> None:
        """Settle what is left of the run without results."""
        self._settle(run, [None] * (len(run.commands) - run.settled), outcome)

    def _settle(
        self, run: ProposalRun, results: Sequence[object], outcome: ProposalOutcome
    ) -> None:
        self._completed.append(run.settle(results, outcome))
        self._finished += len(results)

    def _publish(self) -> None:
        node = self._node
        if not node.is_leader:
            while self._in_log:
                self._abandon(self._in_log.popleft(), ProposalOutcome.UNKNOWN)
        leader = node.leader
        leadership = RaftLeadership(
            node.leads_caught_up, 0 if leader is None else leader.voter_id, node.term
        )
        if node.is_leader:
            self.sole_leader_until_s = node.sole_leader_until_s()
        applied = node.last_applied
        if self._completed or leadership != self._leadership or applied != self._applied:
            completed, self._completed = self._completed, []
            self._leadership, self._applied = leadership, applied
            self._on_round(completed, leadership)

    def _answer_calls(self) -> None:
        while self._calls:
            function, future = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(self._node))
                except Exception as error:  # noqa: BLE001 - it is the asker's error
                    future.set_exception(error)
