"""One voter as its gRPC service sees it: on the event loop, with the raft thread behind it.

The raft thread hands over the changes of each of its rounds in one call; here that becomes the
newest image, the tail of the log, woken watchers and answered proposals.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from quorate.common.types import ID_BYTES, MetadataOffset, SessionId
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    FolderMark,
    FolderMarks,
    Operation,
    QuorumVoter,
    Record,
    SessionClosed,
    SessionSilence,
    SessionSilences,
    Transaction,
    TransactionResult,
)
from quorate.quorum.quorum_config import QuorumConfig
from quorate.quorum.raft.driver import (
    ProposalOutcome,
    ProposalRun,
    RaftDriver,
    RaftLeadership,
    Settled,
)
from quorate.quorum.raft.raft_clock import clock_s, wall_clock_ms
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.voter import folder_marks
from quorate.quorum.voter.sessions import HANDOVER_MARGIN_MS, TICK_MS, KeepAlive, SessionTable
from quorate.quorum.voter.state_machine import AppliedSince, QuorumStateMachine
from quorate.quorum.voter.watch_sources import (
    JournalRange,
    LogTail,
    SharedSnapshot,
    journal_reader,
    transactions,
)

log = logging.getLogger(__name__)


class NotLeader(Exception):
    """This voter does not lead: nothing was done."""


class OutcomeLost(Exception):
    """This voter lost its leadership while the proposal was under way."""


class SingleProposal:
    """Receives the outcome of one proposal for which a caller waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Settled] = loop.create_future()

    def completed(self, settled: Settled) -> None:
        if not self.future.done():
            self.future.set_result(settled)


class Voter:
    """The voter. Use all methods on the event loop, except ``on_round``."""

    def __init__(self, config: QuorumConfig, machine: QuorumStateMachine) -> None:
        self.config = config
        self.leadership = RaftLeadership(False, 0, 0)
        self.image = Image()
        self.applied_offset = MetadataOffset(0)
        self.tail = LogTail()
        self._lease_ms = config.raft_options.leader_fallback_s * 1000
        self._sessions = SessionTable(max(HANDOVER_MARGIN_MS, 2 * self._lease_ms))
        self._followed = (self.image.sessions, self.image.silences)
        self.snapshot = SharedSnapshot()
        self.watchers = 0
        self._noting: asyncio.Task[None] | None = None
        self._marks = folder_marks.FolderMarks()
        self._marking: asyncio.Task[None] | None = None
        self.without_leader_since: float | None = clock_s()
        self._machine = machine
        self._loop = asyncio.get_running_loop()
        self._driver: RaftDriver | None = None
        self._changed = asyncio.Event()
        self._barriers: list[asyncio.Future[MetadataOffset]] = []
        self._barrier_under_way = False
        self._ticker: asyncio.Task[None] | None = None

    @property
    def is_started(self) -> bool:
        return self._driver is not None

    @property
    def driver(self) -> RaftDriver:
        if self._driver is None:
            raise RuntimeError("the voter was not started")
        return self._driver

    def members(self) -> Sequence[QuorumVoter]:
        """Return the committed voter set with its observers, or the configured voters while there
        is none.
        """
        voter_set = self.image.voter_set
        if voter_set.version:
            return voter_set.voters
        return [voter.as_member() for voter in self.config.voters]

    def start(self, driver: RaftDriver) -> None:
        self._driver = driver
        driver.start()
        self._ticker = asyncio.create_task(self._tick_sessions(), name="session-ticker")

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        if self._driver is not None:
            await asyncio.to_thread(self._driver.stop)

    # -- what the raft thread tells --------------------------------------------------------------

    def on_round(
        self, node: RaftNode, completed: list[Settled], leadership: RaftLeadership
    ) -> None:
        """Hand everything of this round to the loop in one call. It runs on the raft thread."""
        applied = self._machine.take_applied()
        offset = MetadataOffset(node.last_applied)
        self._loop.call_soon_threadsafe(self._take_round, applied, offset, completed, leadership)

    def _take_round(
        self,
        applied: AppliedSince,
        offset: MetadataOffset,
        completed: list[Settled],
        leadership: RaftLeadership,
    ) -> None:
        if applied.installed_at is not None:
            self.tail.restart(MetadataOffset(applied.installed_at + 1))
        self.tail.extend(applied.entries)
        self.image = applied.image
        self.applied_offset = offset
        if leadership != self.leadership:
            self._take_leadership(leadership)
        for settled in completed:
            settled.run.owner.completed(settled)
        self._changed.set()
        self._changed = asyncio.Event()

    def _take_leadership(self, leadership: RaftLeadership) -> None:
        before, self.leadership = self.leadership, leadership
        if leadership.leader_id != before.leader_id:
            log.info("term %d: leader is %d", leadership.term, leadership.leader_id)
        if leadership.leader_id:
            self.without_leader_since = None
        elif self.without_leader_since is None:
            self.without_leader_since = clock_s()
        if not leadership.leads:
            self._sessions.resign()
        elif not before.leads or leadership.term != before.term:
            self._followed = (self.image.sessions, self.image.silences)
            self._sessions.lead(self._session_timeouts(), self.image.silences)

    def _session_timeouts(self) -> dict[SessionId, int]:
        return {key: session.timeout_ms for key, session in self.image.sessions.items()}

    # -- waiting ---------------------------------------------------------------------------------

    async def changed(self) -> None:
        """Wait for the next round that changed something."""
        await self._changed.wait()

    async def applied(self, offset: MetadataOffset) -> None:
        """Wait until everything up to ``offset`` is applied here."""
        while self.applied_offset < offset:
            await self.changed()

    # -- proposing -------------------------------------------------------------------------------

    @property
    def accepts_proposals(self) -> bool:
        """Whether this voter leads a quorum that has begun, which means that its voter set is
        committed.
        """
        return (
            self.leadership.leader_id == self.config.voter_id and self.image.voter_set.version > 0
        )

    def submit(self, run: ProposalRun) -> bool:
        """Submit proposals, as ``RaftDriver.submit`` does."""
        return self.driver.submit(run)

    async def propose(self, *records: Record) -> tuple[MetadataOffset, TransactionResult]:
        """Commit a transaction of the quorum's own; return its offset and result.

        Raises:
            NotLeader: surely not applied.
            OutcomeLost: may or may not be applied.
        """
        operation = Operation(records=records)
        command = encode_transaction(
            Transaction(operations=(operation,), timestamp_ms=wall_clock_ms())
        )
        result: TransactionResult = await self._committed(command)
        return result.offset, result

    async def barrier(self) -> MetadataOffset:
        """Return an offset that covers everything acknowledged before this call, and is applied
        here.

        Reads that come while a no-op is under way share the next one.

        Raises:
            NotLeader, OutcomeLost: ask the leader.
        """
        future: asyncio.Future[MetadataOffset] = self._loop.create_future()
        self._barriers.append(future)
        if not self._barrier_under_way:
            self._barrier_under_way = True
            self._barrier_task = asyncio.create_task(self._run_barriers(), name="read-barrier")
        return await future

    async def _run_barriers(self) -> None:
        try:
            while self._barriers:
                served, self._barriers = self._barriers, []
                try:
                    await self._committed(None)
                except (NotLeader, OutcomeLost) as error:
                    for future in served:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for future in served:
                    if not future.done():
                        future.set_result(self.applied_offset)
        finally:
            self._barrier_under_way = False

    async def _committed(self, command: bytes | None) -> Any:  # noqa: ANN401 - what apply returns
        """Commit the command, and return its result."""
        single = SingleProposal(self._loop)
        if not self.accepts_proposals or not self.submit(ProposalRun([command], single)):
            raise NotLeader
        settled = await single.future
        if settled.outcome is ProposalOutcome.COMMITTED:
            return settled.results[0]
        raise NotLeader if settled.outcome is ProposalOutcome.NOT_LEADER else OutcomeLost

    # -- sessions --------------------------------------------------------------------------------

    @property
    def heard_majority_just_now(self) -> bool:
        """Whether a majority was heard so lately that another leader, elected since, cannot have
        expired any session yet: it gives each of them twice as long at least.
        """
        return 1000 * (clock_s() - self.driver.sole_leader_until_s) < self._lease_ms

    def new_session_id(self) -> SessionId:
        return SessionId(os.urandom(ID_BYTES))

    def keep_alive(self, session_id: SessionId, stream: object, mark: int = 0) -> KeepAlive:
        """Take a keep-alive that came on ``stream``, with the mark of a broker's log folder. It is
        not answered unless a majority was just heard.
        """
        self._follow_sessions()
        answer = self._sessions.keep_alive(session_id, stream)
        if answer is KeepAlive.ALIVE:
            self._marks.hear(session_id, mark)
        return answer if self.heard_majority_just_now else KeepAlive.NO_ANSWER

    def keep_alive_interval_ms(self, session_id: SessionId) -> int:
        """Return the interval at which the session is to send keep-alives, 0 for its own."""
        return self._sessions.interval_ms(session_id)

    def keep_alive_stream_closed(self, session_id: SessionId, stream: object) -> None:
        self._sessions.stream_closed(session_id, stream)

    def _follow_sessions(self) -> None:
        """Follow the committed sessions, but not in every round: opening n sessions must not cost n
        squared.
        """
        sessions, silences = self._followed
        if self.image.sessions is not sessions or self.image.silences is not silences:
            self._followed = (self.image.sessions, self.image.silences)
            self._sessions.follow(self._session_timeouts(), self.image.silences)

    async def _tick_sessions(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self._follow_sessions()
            for session_id in self._sessions.tick(self._loop.time() * 1000):
                log.info("session %s expired", session_id.hex())
                expiry = asyncio.create_task(self._expire(session_id))
                expiry.add_done_callback(_log_failure)
            self._note_silences()
            self._note_marks()

    async def _expire(self, session_id: SessionId) -> None:
        try:
            await self.propose(SessionClosed(session_id=session_id, reason="expired"))
        except NotLeader:
            self._sessions.expiry_refused(session_id)
        except OutcomeLost:
            pass  # The next leader decides about it.

    def _note_silences(self) -> None:
        """Note the silences in one transaction for all sessions, and one at a time."""
        if self._noting is not None and not self._noting.done():
            return
        silences = self._sessions.silences_to_note()
        if silences:
            self._noting = asyncio.create_task(self._note(silences), name="session-silences")
            self._noting.add_done_callback(_log_failure)

    async def _note(self, silences: Mapping[SessionId, int]) -> None:
        noted = tuple(
            SessionSilence(session_id=session_id, quarters=quarters)
            for session_id, quarters in silences.items()
        )
        with contextlib.suppress(NotLeader, OutcomeLost):
            await self.propose(SessionSilences(silences=noted))

    def _note_marks(self) -> None:
        """Note the marks of all log folders in one transaction, and one at a time."""
        if not self.leadership.leads or (self._marking is not None and not self._marking.done()):
            return
        marks = self._marks.due(self.image, self._loop.time() * 1000)
        if marks:
            self._marking = asyncio.create_task(self._mark(marks), name="folder-marks")
            self._marking.add_done_callback(_log_failure)

    async def _mark(self, marks: tuple[FolderMark, ...]) -> None:
        with contextlib.suppress(NotLeader, OutcomeLost):
            await self.propose(FolderMarks(marks=marks))

    # -- reading the log -------------------------------------------------------------------------

    async def read_journal(self, start: MetadataOffset) -> JournalRange | None:
        """Return some applied entries from ``start`` on out of the journal, or None if they are
        compacted away.
        """
        entries = await asyncio.wrap_future(self.driver.call(journal_reader(start)))
        return None if entries is None else transactions(entries, start)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("writing about sessions failed", exc_info=task.exception())
