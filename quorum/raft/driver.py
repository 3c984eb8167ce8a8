"""The thread that drives a voter: read, make durable, decide, send, make durable (P16, P17, P18).

Per round: read the sockets; one fsync and the acknowledgements for what the leader sent; take the
proposals; the library's tick commits, applies and appends; new entries go out to the followers and
only then is our own log synced, in parallel with theirs. Nothing waits while there is work, and an
arriving proposal ends the wait.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pysyncobj import FAIL_REASON

from quorum.raft.library import clock_s
from quorum.raft.node import SUCCESS, RaftNode

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 100_000
"""Proposals without an outcome; more are refused at once."""

_TEND_S: Final = 0.1
_SURELY_NOT_APPLIED: Final = (
    FAIL_REASON.QUEUE_FULL,
    FAIL_REASON.MISSING_LEADER,
    FAIL_REASON.NOT_LEADER,
    FAIL_REASON.REQUEST_DENIED,
    FAIL_REASON.DISCARDED,
)


class Outcome(IntEnum):
    """What became of a proposal."""

    PENDING = 0
    COMMITTED = 1
    NOT_LEADER = 2
    """Surely not applied."""
    UNKNOWN = 3
    """This voter lost its leadership meanwhile."""


class ProposalOwner(Protocol):
    """Who is told the outcome of a proposal; not on the raft thread."""

    def completed(self, proposal: Any) -> None: ...  # noqa: ANN401 - its own kind of proposal


class Proposal:
    """One command on its way through the log. ``command`` None: a no-op, as a barrier."""

    __slots__ = ("command", "outcome", "owner", "result")

    def __init__(self, command: bytes | None, owner: ProposalOwner) -> None:
        self.command = command
        self.owner = owner
        self.outcome = Outcome.PENDING
        self.result: Any = None


class Leadership(NamedTuple):
    """Who leads, as this voter knows it."""

    leads: bool
    """This voter leads and has applied everything that earlier leaders committed."""
    leader_id: int
    """0: unknown."""
    term: int


class RaftDriver:
    """Runs a ``RaftNode``; proposals and questions come from other threads.

    A round is ``read`` and ``decide``; ``start`` begins a thread that does nothing else.
    """

    def __init__(
        self,
        node: RaftNode,
        on_round: Callable[[list[Proposal], Leadership], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """``on_round`` is called on the raft thread when a round changed something;
        ``on_failed`` once, when the voter cannot go on: the process must end."""
        self._node = node
        self._on_round = on_round
        self._on_failed = on_failed
        self._queue: deque[Sequence[Proposal]] = deque()
        self._submitted = 0  # Counted by who submits.
        self._finished = 0  # Counted on the raft thread.
        self._calls: deque[tuple[Callable[[RaftNode], Any], Future[Any]]] = deque()
        self._in_flight: set[Proposal] = set()
        self._completed: list[Proposal] = []
        self._leadership = Leadership(False, 0, 0)
        self._applied = 0
        self._stopping = False
        self._tend_at = 0.0
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)
        self.majority_heard_s = float("-inf")
        """When a majority last answered this leader, on ``clock_s``. Read from any thread."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; whatever is acknowledged is on disk. Blocks for one round."""
        self._stopping = True
        self._node.poller.wake()
        self._thread.join()

    def submit(self, proposals: Sequence[Proposal]) -> bool:
        """Hand in proposals; False if too many are waiting. From one thread, any one."""
        if self._submitted - self._finished > MAX_QUEUED or self._stopping:
            return False
        self._submitted += len(proposals)
        self._queue.append(proposals)
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
        except BaseException as error:
            log.critical("the voter cannot go on", exc_info=True)
            self._stopping = True
            self._on_failed(error)
        finally:
            for _, future in self._calls:
                future.cancel()
            self._node.transport.destroy()

    def read(self) -> None:
        """First half of a round: wait, read the sockets, make durable and acknowledge."""
        node = self._node
        node.poller.wait(0 if self._queue or self._calls else node.wait_s())
        node.settle()

    def decide(self) -> None:
        """Second half: proposals, the library's tick, what goes out, our own fsync, the news."""
        node = self._node
        self._accept()
        node.tick()
        node.send_new_entries()
        self._publish()
        node.journal.sync()
        self._answer_calls()
        now = clock_s()
        if now >= self._tend_at:
            self._tend_at = now + _TEND_S
            node.transport.tend(now)

    def _accept(self) -> None:
        while self._queue:
            proposals = self._queue.popleft()
            for proposal in proposals:
                self._in_flight.add(proposal)
                on_committed = _completion(self, proposal)
                if proposal.command is None:
                    self._node.propose_no_op(on_committed)
                else:
                    self._node.propose(proposal.command, on_committed)

    def _complete(self, proposal: Proposal, result: object, reason: int) -> None:
        if proposal not in self._in_flight:
            return
        self._in_flight.remove(proposal)
        self._finished += 1
        if reason == SUCCESS:
            proposal.outcome = Outcome.COMMITTED
            proposal.result = result
        elif reason in _SURELY_NOT_APPLIED:
            proposal.outcome = Outcome.NOT_LEADER
        else:
            proposal.outcome = Outcome.UNKNOWN
        self._completed.append(proposal)

    def _publish(self) -> None:
        node = self._node
        if self._in_flight and not node.is_leader:
            for proposal in list(self._in_flight):
                self._complete(proposal, None, FAIL_REASON.UNKNOWN_OUTCOME)
        leader = node.leader
        leadership = Leadership(
            node.leads_caught_up, 0 if leader is None else leader.voter_id, node.term
        )
        if node.is_leader:
            self.majority_heard_s = node.majority_heard_s()
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


def _completion(driver: RaftDriver, proposal: Proposal) -> Callable[[Any, int], None]:
    def on_committed(result: object, reason: int) -> None:
        driver._complete(proposal, result, reason)

    return on_committed
