"""Elections, the driving thread, and what is on disk when something is said (P6, P8, P14-P18)."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol, cast

import pysyncobj.syncobj
import pytest
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf

from quorate.quorum.raft.driver import RaftDriver
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.storage.lmdb_journal import LmdbStore
from tests.support.raft_node import LoneNode, RecordingTransport
from tests.support.raft_sides import Clock, Named, OurSide, Side, StockSide, fault


def named(names: str, term: int = 1) -> list[Named]:
    return [(name.encode(), term) for name in names]


@fault("P6", "an entry whose apply fails is tried again in every round")
def test_p6_failing_entry_is_not_tried_again(voter: Side) -> None:
    tried: list[bytes] = []

    def fail(name: bytes) -> None:
        tried.append(name)
        raise KeyError(name)

    voter.on_apply = fail
    voter.append_from(2, (1, 0), named("a"), commit_index=2)
    voter.drive(5)
    assert tried == [b"a"]


@fault("P6", "an entry whose caller's callback fails is applied twice")
def test_p6_failing_callback_applies_nothing_twice(voter: Side) -> None:
    def fail(_result: object, _reason: int) -> None:
        raise KeyError

    voter.become_leader()
    voter.propose(b"a", fail)
    voter.drive(1)
    voter.acknowledge(2, 3, term=voter.term)
    voter.drive(3)
    assert voter.applied == [b"a"]


@fault("P8", "a voter that was cut off spends a term, and so unseats a healthy leader")
def test_p8_voter_without_a_majority_spends_no_term(voter: Side, clock: Clock) -> None:
    voter.append_from(2, (1, 0), named("a"))
    for _ in range(5):
        clock.advance(2)
        voter.tick()
    assert voter.term == 1
    assert voter.take_sent("request_vote") == []


@fault("P8", "the election clock runs while the journal is loaded")
def test_p8_long_start_is_not_the_leaders_silence(
    voter: Side,
    side: type[Side],
    tmp_path: Path,
    clock: Clock,
    closing: Callable[[Side], Side],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    voter.append_from(2, (1, 0), named("a"))
    voter.tick()
    crashed = voter.crashed(tmp_path / "crashed")
    slow_journal(side, clock, monkeypatch)
    again = closing(voter.restarted(crashed))
    again.tick()
    assert (again.term, again.take_sent()) == (1, [])


def slow_journal(side: type[Side], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading takes ten seconds."""
    if side is StockSide:
        create = pysyncobj.syncobj.createJournal

        def load_slowly(path: str) -> object:
            clock.advance(10)
            return create(path)

        monkeypatch.setattr(pysyncobj.syncobj, "createJournal", load_slowly)
        return
    load = LmdbStore.load

    def load_ours_slowly(self: LmdbStore) -> object:
        clock.advance(10)
        return load(self)

    monkeypatch.setattr(LmdbStore, "load", load_ours_slowly)


@fault("P14", "a leader that hears from nobody leads on for 30 s, and would serve stale reads")
def test_p14_leader_without_a_majority_stops_before_another_can_rise(
    voter: Side, clock: Clock
) -> None:
    """Stock has no read index either: what its leader holds is all that can be read."""
    voter.become_leader()
    clock.advance(2)  # Longer than any election timeout: the others have a leader by now.
    voter.tick()
    assert not voter.leads


@fault("P15", "a proposal that a follower passed on may never be answered")
def test_p15_every_proposal_is_answered(voter: Side, clock: Clock) -> None:
    """It is lost with the connection that it went out on; the leader stays the same."""
    answers: list[int] = []
    voter.append_from(2, (1, 0), named("a"))
    voter.propose(b"x", lambda _result, reason: answers.append(reason))
    voter.tick()
    voter.transport.disconnect(voter.peer(2))
    voter.transport.connect(voter.peer(2))
    for _ in range(60):
        voter.append_from(2, (2, 1), [])
        clock.advance(0.1)
        voter.tick()
    assert answers == [FAIL_REASON.NOT_LEADER]


@fault("P15", "what is sent again after a lost answer is applied again")
def test_p15_nothing_is_passed_on_that_could_be_applied_behind_the_callers_back(
    voter: Side,
) -> None:
    """Stock sends it to the leader without a number by which a repetition could be known."""
    voter.append_from(2, (1, 0), named("a"))
    voter.propose(b"x", lambda _result, _reason: None)
    voter.tick()
    assert voter.take_sent("apply_command") == []


@fault("P16", "the driving thread ends with the thread that made it")
def test_p16_voter_outlives_the_thread_that_started_it(side: type[Side], tmp_path: Path) -> None:
    """A thread starts the voter and ends; only then something is to happen."""
    driving: list[DrivenByItself] = []
    start = OurDriver if side is OurSide else StockTicking
    starting = threading.Thread(target=lambda: driving.append(start(tmp_path)))
    starting.start()
    starting.join()
    try:
        assert driving[0].does_something()
    finally:
        driving[0].stop()


class DrivenByItself(Protocol):
    """A voter with its own thread."""

    def does_something(self) -> bool: ...
    def stop(self) -> None: ...


class OurDriver:
    def __init__(self, folder: Path) -> None:
        self._lone = LoneNode(folder / "voter")
        self._lone.transport.tend = lambda now: None  # type: ignore[method-assign]
        self._driver = RaftDriver(
            self._lone.node, lambda _done, _leadership: None, lambda _error: None
        )
        self._driver.start()

    def does_something(self) -> bool:
        return self._driver.call(lambda _node: True).result(timeout=10)

    def stop(self) -> None:
        self._driver.stop()
        self._lone.close()


class StockTicking:
    def __init__(self, folder: Path) -> None:
        conf = SyncObjConf(autoTickPeriod=0.001)
        transport = RecordingTransport(cast("VoterNode", None), [])
        self._voter = SyncObj("127.0.0.1:1", [], conf=conf, transport=transport)
        self._ticking = self._voter._SyncObj__thread

    def does_something(self) -> bool:
        ticked = threading.Event()
        self._voter.addOnTickCallback(ticked.set)
        self._ticking.join(timeout=1)  # It is about to look whether its maker still lives.
        return ticked.is_set()

    def stop(self) -> None:
        self._voter.destroy()
        self._ticking.join()


@fault("P16", "nothing wakes the driver: a proposal waits for the end of a period")
def test_p16_proposal_ends_the_wait(voter: Side) -> None:
    assert not voter.is_woken()
    voter.propose(b"a", lambda _result, _reason: None)
    assert voter.is_woken()


@fault("P17", "the deadline counts although the heartbeat lies in the socket")
def test_p17_heartbeat_in_the_socket_prevents_the_election(voter: Side, clock: Clock) -> None:
    """A stall of our own, of a second: the leader was never silent."""
    voter.append_from(2, (1, 0), named("a"))
    voter.tick()
    voter.take_sent()
    clock.advance(2)
    voter.arrives_in_a_socket(lambda: voter.append_from(2, (2, 1), []))
    voter.tick()
    kinds = {message["type"] for _, message in voter.take_sent()}
    assert kinds <= {"next_node_idx"}
    assert voter.term == 1


@pytest.fixture
def told(voter: Side) -> list[SimpleNamespace]:
    """Every message sent from here on, and whether all it tells of was on disk."""
    sent: list[SimpleNamespace] = []
    send = voter.transport.send

    def watched(node: VoterNode, message: Message) -> bool:
        sent.append(SimpleNamespace(kind=message["type"], durable=voter.is_durable()))
        return bool(send(node, message))

    voter.transport.send = watched  # type: ignore[method-assign]
    return sent


@fault("P18", "a vote is asked for before the term is on disk")
def test_p18_vote_is_asked_for_with_the_term_on_disk(
    voter: Side, told: list[SimpleNamespace]
) -> None:
    voter.become_leader()
    asked = [message for message in told if message.kind == "request_vote"]
    assert asked
    assert all(message.durable for message in asked)


@fault("P18", "a vote is given before it is on disk")
def test_p18_vote_is_given_with_the_vote_on_disk(voter: Side, told: list[SimpleNamespace]) -> None:
    asks = {"type": "request_vote", "term": 1, "last_log_index": 9, "last_log_term": 1}
    voter.receive(2, asks)
    assert [(message.kind, message.durable) for message in told] == [("response_vote", True)]


@fault("P18", "an entry is acknowledged before it is on disk")
def test_p18_entries_are_acknowledged_with_the_entries_on_disk(
    voter: Side, told: list[SimpleNamespace]
) -> None:
    voter.append_from(2, (1, 0), named("ab"))
    voter.tick()
    answers = [message for message in told if message.kind == "next_node_idx"]
    assert answers
    assert all(message.durable for message in answers)


@fault("P18", "the leader counts itself for entries that it has not on disk")
def test_p18_leader_applies_with_its_own_entries_on_disk(voter: Side) -> None:
    durable: list[bool] = []
    voter.on_apply = lambda _name: durable.append(voter.is_durable())
    voter.become_leader()
    voter.propose(b"a", lambda _result, _reason: None)
    voter.tick()
    voter.acknowledge(2, 3, term=voter.term)
    voter.tick()
    assert durable == [True]
