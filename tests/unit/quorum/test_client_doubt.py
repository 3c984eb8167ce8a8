"""A client and a leader that falls silent without closing anything, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import quorate.quorum.client.leader_connection
from quorate.common.types import SessionId
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.leader_connection import (
    DOUBT_AFTER_S,
    LeaderConnection,
    LeaderGone,
    PendingAnswer,
)
from quorate.quorum.client.pending_transactions import PendingTransactions
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.virtual_time import VirtualTimeLoop, pass_time

VOTERS = {1: "one:1", 2: "two:2", 3: "three:3"}
SESSION = SessionId(b"s" * 16)


class Quorum:
    """What each voter says of the leader; one that is not in ``says`` never answers."""

    def __init__(self) -> None:
        self.says: dict[int, tuple[int, int]] = {}
        self.asked: list[int] = []

    async def status(self, address: str) -> pb.QuorumStatusResponse:
        voter_id = next(voter_id for voter_id, where in VOTERS.items() if where == address)
        self.asked.append(voter_id)
        while voter_id not in self.says:
            await pass_time(0.01)
        term, leader_id = self.says[voter_id]
        voters = [pb.VoterStatus(voter_id=each, grpc_address=VOTERS[each]) for each in VOTERS]
        return pb.QuorumStatusResponse(
            voter_id=voter_id, leader_id=leader_id, term=term, voters=voters
        )


class Stream:
    """A stream to the leader; what it answers, and when, is the test's business."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def sent(self) -> int:
        """Transactions in all frames."""
        return sum(len(frame.request_ids) for frame in self.written)

    async def write(self, message: object) -> None:
        self.written.append(message)

    async def read(self) -> object:
        return await self.answers.get()

    def cancel(self) -> None: ...


class Scene:
    """A client in the middle of a tenure of voter 1, which it found in term 5."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.quorum = Quorum()
        self.quorum.says = {1: (5, 1), 2: (5, 1), 3: (5, 1)}
        self.directory = VoterDirectory(list(VOTERS.values()))
        monkeypatch.setattr(self.directory, "status", self.quorum.status)
        self.transactions, self.keep_alives = Stream(), Stream()
        monkeypatch.setattr(
            quorate.quorum.client.leader_connection, "stub_of", lambda _channel: self
        )
        monkeypatch.setattr(self.directory, "channel", lambda _address: None)
        self.pending = PendingTransactions()
        self.work = asyncio.Event()
        self.intervals_ms: list[float] = []

    def Transact(self) -> Stream:
        return self.transactions

    def KeepAlive(self) -> Stream:
        return self.keep_alives

    async def begin(self) -> "asyncio.Task[None]":
        assert await self.directory.find_leader() == VOTERS[1]
        self.quorum.asked.clear()
        tenure = LeaderConnection(
            self.directory,
            VOTERS[1],
            SESSION,
            6_000,
            self.pending,
            self.work,
            on_kept_alive=lambda _sent_ms, interval_ms: self.intervals_ms.append(interval_ms),
            on_session_gone=lambda _session_id: None,
            mark=lambda: 7,
        )
        return asyncio.create_task(tenure.run())

    def answer_keep_alive(self, interval_ms: int = 0) -> None:
        answer = pb.KeepAliveResponse(alive=True, interval_ms=interval_ms)
        self.keep_alives.answers.put_nowait(answer)

    def transact(self) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.add(SESSION, (), atomic=True, timestamp_ms=1, future=future, timeout_ms=30_000)
        self.work.set()
        return future


def run(test: Callable[[Scene], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await test(Scene(monkeypatch))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_silent_leader_is_left_once_another_one_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.answer_keep_alive()
        await pass_time(0.1)
        del scene.quorum.says[1]
        scene.transact()
        stopped_s = now_s()
        await pass_time(0.6)
        assert not tenure.done()
        scene.quorum.says |= {2: (6, 2), 3: (6, 2)}
        with pytest.raises(LeaderGone):
            await tenure
        assert now_s() - stopped_s < 0.6 + 0.2
        assert await scene.directory.find_leader() == VOTERS[2]

    run(test, monkeypatch)


def test_unanswered_keep_alive_is_reason_enough_for_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.quorum.says |= {2: (6, 2), 3: (6, 2)}
        started_s = now_s()
        with pytest.raises(LeaderGone):
            await tenure
        assert now_s() - started_s < 0.5

    run(test, monkeypatch)


def test_busy_leader_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.answer_keep_alive()
        scene.transact()
        await pass_time(0.9)
        assert {2, 3} <= set(scene.quorum.asked)
        assert not tenure.done()
        tenure.cancel()

    run(test, monkeypatch)


def test_leader_that_answers_is_not_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some answers always take longer than others: as long as any comes, it lives."""

    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.answer_keep_alive()
        scene.transact()
        for _ in range(20):
            await pass_time(0.9 * DOUBT_AFTER_S)
            scene.transactions.answers.put_nowait(pb.TransactReplyFrame())
            scene.answer_keep_alive()
        assert scene.quorum.asked == []
        tenure.cancel()

    run(test, monkeypatch)


def test_idle_client_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.answer_keep_alive()
        await pass_time(0.95)
        assert scene.quorum.asked == []
        tenure.cancel()

    run(test, monkeypatch)


@pytest.mark.parametrize(
    ("named_ms", "kept_ms"), [(0, 1_000), (500, 1_000), (1_600, 1_600), (60_000, 2_000)]
)
def test_client_follows_the_interval_that_the_leader_names_within_its_session_timeout(
    monkeypatch: pytest.MonkeyPatch, named_ms: int, kept_ms: int
) -> None:
    async def test(scene: Scene) -> None:
        tenure = await scene.begin()
        scene.answer_keep_alive(interval_ms=named_ms)
        await pass_time(kept_ms / 1000 - 0.05)
        assert len(scene.keep_alives.written) == 1
        scene.answer_keep_alive()
        await pass_time(0.1)
        assert len(scene.keep_alives.written) == 2
        await pass_time(1.0)
        assert len(scene.keep_alives.written) == 3, "the interval before holds no longer"
        assert scene.intervals_ms == [kept_ms, 1_000]
        tenure.cancel()

    run(test, monkeypatch)


@pytest.mark.parametrize(
    ("says", "elsewhere"),
    [
        ({2: (6, 2)}, True),
        ({2: (6, 3), 3: (5, 1)}, True),
        ({2: (5, 1), 3: (5, 1)}, False),
        ({2: (4, 2), 3: (5, 1)}, False),  # A leader of the past that has not noticed yet.
        ({2: (6, 0), 3: (5, 1)}, False),
        ({2: (6, 1), 3: (6, 1)}, False),
        ({}, False),
    ],
)
def test_only_another_leader_of_a_later_term_is_a_reason_to_leave(
    monkeypatch: pytest.MonkeyPatch, says: dict[int, tuple[int, int]], elsewhere: bool
) -> None:
    async def test(scene: Scene) -> None:
        await scene.directory.find_leader()
        scene.quorum.says = says
        asked = asyncio.create_task(scene.directory.leads_elsewhere(VOTERS[1]))
        done, _ = await asyncio.wait([asked], timeout=2.0)
        assert (asked in done and asked.result()) is elsewhere
        asked.cancel()

    run(test, monkeypatch)


def test_leader_is_found_while_a_voter_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        scene.quorum.says = {2: (6, 3)}
        started_s = now_s()
        assert await scene.directory.find_leader() == VOTERS[3]
        assert now_s() - started_s < 0.5

    run(test, monkeypatch)


def test_what_is_owed_runs_from_the_last_answer() -> None:
    now = [0.0]
    owed = PendingAnswer(lambda: now[0])

    def doubted_at(when_s: float) -> bool:
        now[0] = when_s
        return owed.is_in_doubt

    assert not doubted_at(9)
    owed.asked()
    assert not doubted_at(9.2)
    owed.asked()
    assert doubted_at(9.2 + DOUBT_AFTER_S - 0.1)
    owed.heard(owes_more=True)
    assert not doubted_at(9.3)
    assert doubted_at(10)
    owed.heard(owes_more=False)
    assert not doubted_at(20)
