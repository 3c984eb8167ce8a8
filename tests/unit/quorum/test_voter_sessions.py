"""The leader's sessions between the event loop and the log, on virtual time (rule 9)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import quorate.quorum.voter.sessions
import quorate.quorum.voter.voter
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import SessionId
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.records import (
    QuorumVoterSet,
    Record,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    TransactionResult,
)
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.client.watch import HEARTBEAT_MAX_MS, watch_request
from quorate.quorum.quorum_config import quorum_config
from quorate.quorum.raft.driver import ProposalOutcome, ProposalRun, RaftLeadership, Settled
from quorate.quorum.voter.quorum_service import QuorumService
from quorate.quorum.voter.sessions import KeepAlive
from quorate.quorum.voter.state_machine import QuorumStateMachine
from quorate.quorum.voter.voter import Voter
from quorate_proto.v1 import quorum_pb2 as pb
from tests.sim.service import CallContext
from tests.support.metadata import MetadataLogBuilder, quorum_voter, session_of
from tests.support.virtual_time import VirtualTimeLoop, pass_time
from tests.support.waiting import async_wait_until

ONE = session_of(1)
STREAM = object()


class LeadingVoter:
    """A voter that leads; what it proposes is committed only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(quorate.quorum.voter.voter, "clock_s", loop.time)
        config = quorum_config(
            {
                "node.id": 1,
                "cluster.id": "test",
                "data.dir": "unused",
                "quorum.voters": "1@127.0.0.1:7001/7101",
                "security.protocol": "PLAINTEXT",
                **more,
            }
        )
        self.machine = QuorumStateMachine()
        self.voter = Voter(config, self.machine)
        self.proposed: list[ProposalRun] = []
        self.sole_leader_until_s = loop.time()
        self._index = 0
        self._log = MetadataLogBuilder()
        self._log.write(QuorumVoterSet(expected_version=0, voters=(quorum_voter(1),)))
        self._log.write(SessionOpened(session_id=ONE, timeout_ms=6_000))
        self.voter.start(cast("Any", self))
        self.lead(1)

    # -- as the driver ---------------------------------------------------------------------------

    def start(self) -> None: ...
    def stop(self) -> None: ...

    def submit(self, run: ProposalRun) -> bool:
        self.proposed.append(run)
        return True

    # -- what the test does ----------------------------------------------------------------------

    def lead(self, term: int) -> None:
        self.machine.image = self._log.image
        applied = self.machine.take_applied()
        self.voter._take_round(applied, self._log.image.offset, [], RaftLeadership(True, 1, term))

    def resign(self) -> None:
        applied = self.machine.take_applied()
        offset = self.voter.applied_offset
        self.voter._take_round(applied, offset, [], RaftLeadership(False, 2, 9))

    def records(self) -> list[Record]:
        """Of everything proposed, in order."""
        commands = [run.commands[0] for run in self.proposed]
        assert all(commands)
        return [decode_transaction(command or b"").operations[0].records[0] for command in commands]

    def commit(self) -> None:
        """What was proposed is applied."""
        proposed, self.proposed = self.proposed, []
        committed = [
            Settled(run, 0, [self._result(run)], ProposalOutcome.COMMITTED) for run in proposed
        ]
        self.machine.image = self._log.image
        applied = self.machine.take_applied()
        offset = self._log.image.offset
        self.voter._take_round(applied, offset, committed, self.voter.leadership)

    def _result(self, run: ProposalRun) -> TransactionResult:
        return self._log.apply(decode_transaction(run.commands[0] or b"")).result

    def refuse(self) -> None:
        """What was proposed is surely not applied."""
        refused, self.proposed = self.proposed, []
        for run in refused:
            run.owner.completed(Settled(run, 0, [None], ProposalOutcome.NOT_LEADER))

    def keep_alive(self, session_id: SessionId = ONE) -> KeepAlive:
        return self.voter.keep_alive(session_id, STREAM)


def run(test: Any, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:  # noqa: ANN401
    """``test``: a coroutine function; ``more``: configuration."""

    async def main() -> None:
        leading = LeadingVoter(monkeypatch, **more)
        await test(leading)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


def test_rule9_only_a_leader_that_just_heard_a_majority_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(leading: LeadingVoter) -> None:
        assert leading.keep_alive() is KeepAlive.ALIVE
        assert leading.keep_alive(session_of(2)) is KeepAlive.GONE
        await pass_time(0.26)
        assert leading.keep_alive() is KeepAlive.NO_ANSWER
        assert leading.keep_alive(session_of(2)) is KeepAlive.NO_ANSWER
        leading.sole_leader_until_s = asyncio.get_running_loop().time()
        assert leading.keep_alive() is KeepAlive.ALIVE

    run(test, monkeypatch)


def test_rule9_a_new_leader_expires_nobody_whom_the_last_one_may_still_call_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = {"raft.election.timeout.min.ms": 6_000, "raft.election.timeout.max.ms": 12_000}

    async def test(leading: LeadingVoter) -> None:
        assert leading.keep_alive() is KeepAlive.ALIVE
        await pass_time(4.9)
        assert leading.keep_alive() is KeepAlive.ALIVE
        leading.resign()
        leading.lead(2)
        await pass_time(9.9)
        assert not any(isinstance(one, SessionClosed) for one in leading.records())

    run(test, monkeypatch, **slow)


def test_rule9_no_answer_while_an_expiry_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(leading: LeadingVoter) -> None:
        await async_wait_until(
            lambda: any(isinstance(one, SessionClosed) for one in leading.records()),
            "the end of a session",
        )
        leading.sole_leader_until_s = asyncio.get_running_loop().time()
        assert leading.keep_alive() is KeepAlive.NO_ANSWER
        leading.commit()
        assert leading.keep_alive() is KeepAlive.GONE

    run(test, monkeypatch)


def test_rule9_silence_is_committed_once_and_reaches_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(leading: LeadingVoter) -> None:
        await async_wait_until(lambda: leading.proposed, "a proposal")
        (note,) = leading.records()
        assert isinstance(note, SessionSilences)
        assert [(one.session_id, one.quarters) for one in note.silences] == [(ONE, 1)]
        await pass_time(1)
        assert len(leading.proposed) == 1  # Not again while it is under way.
        while leading.voter.image.silences.get(ONE) != 3:
            leading.commit()
            await pass_time(0.05)
        leading.resign()
        await pass_time(10)
        leading.lead(10)
        elected_s = asyncio.get_running_loop().time()
        await async_wait_until(
            lambda: any(isinstance(one, SessionClosed) for one in leading.records()),
            "the end of a session",
        )
        assert 1.9 < asyncio.get_running_loop().time() - elected_s < 2.3

    run(test, monkeypatch)


def test_rule9_refused_note_is_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(leading: LeadingVoter) -> None:
        await async_wait_until(lambda: leading.proposed, "a proposal")
        leading.refuse()
        await async_wait_until(lambda: leading.proposed, "a proposal")
        assert isinstance(leading.records()[0], SessionSilences)

    run(test, monkeypatch)


def test_answers_to_keep_alives_and_events_name_the_intervals_of_a_voter_with_many_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorate.quorum.voter.sessions, "KEEP_ALIVES_PER_S", 0.5)

    async def pings() -> AsyncIterator[pb.KeepAliveRequest]:
        for session_id in (ONE, session_of(2)):
            yield pb.KeepAliveRequest(session_id=session_id)

    async def test(leading: LeadingVoter) -> None:
        service = QuorumService(leading.voter, cast("Any", None), RefusalLog("a test's port"))
        context = CallContext(5.0)
        answers = [answer async for answer in service.KeepAlive(pings(), context)]
        assert [(one.alive, one.interval_ms) for one in answers] == [(True, 2_000), (False, 0)]
        leading.voter.watchers = 1_000
        request = watch_request(1, heartbeat_max_ms=HEARTBEAT_MAX_MS)
        events = service.Watch(request, context)
        while (event := await anext(events)).transactions:
            pass
        assert event.heartbeat_ms == 2_000

    run(test, monkeypatch)


async def test_the_client_tells_for_how_long_it_sends_no_keep_alive() -> None:
    client = QuorumClient(["127.0.0.1:1"], description="test", session_timeout_ms=3_000)
    assert client.keep_alive_interval_ms == 500
    client._kept_alive(7, 900.0)
    assert (client.last_keep_alive_ms, client.keep_alive_interval_ms) == (7, 900.0)
