"""What a voter makes of messages that are late, repeated or hostile (P3, P4, P5, P7, P9, P12)."""

import os
import pickle
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pysyncobj import FAIL_REASON
from pysyncobj.poller import PollPoller
from pysyncobj.tcp_connection import TcpConnection

from quorate.quorum.raft.network.raft_frames import (
    MalformedRaftFrame,
    Message,
    MessageEncoder,
    decode_frame,
)
from tests.support.raft_sides import Clock, Named, OurSide, Side, StockSide, fault


def named(names: str, term: int = 1) -> list[Named]:
    return [(name.encode(), term) for name in names]


@fault("P3", "success is answered for commands that are then lost")
def test_p3_snapshot_of_another_leader_does_not_commit_what_this_one_proposed(
    voter: Side,
) -> None:
    answers: list[int] = []
    voter.become_leader()
    for name in (b"a", b"b", b"c"):
        voter.propose(name, lambda _result, reason: answers.append(reason))
    voter.tick()
    # Another was elected without these; the first thing it sends belongs to a snapshot.
    next_leader = {"type": "append_entries", "term": voter.term + 1, "serialized": None}
    voter.receive(3, {**next_leader, "commit_index": 50})
    voter.tick()
    assert FAIL_REASON.SUCCESS not in answers
    assert voter.applied == []


@fault("P4", "a late duplicate removes acknowledged entries")
def test_p4_late_duplicate_removes_nothing(voter: Side) -> None:
    whole = named("abcd")
    voter.append_from(2, (1, 0), whole)
    voter.tick()
    assert_acknowledged_up_to(voter, 5)
    voter.append_from(2, (1, 0), whole[:2])
    assert voter.log() == whole


@fault("P5", "an answer of an earlier term counts towards a majority")
def test_p5_acknowledgement_of_an_earlier_term_commits_nothing(voter: Side) -> None:
    """Entry 3 was acknowledged in term 1, then replaced by others; that answer comes late."""
    voter.become_leader()
    voter.propose(b"of term 1", lambda _result, _reason: None)
    voter.tick()
    voter.append_from(2, (1, 0), named("x", term=2))
    lead_again(voter)
    assert voter.log()[1][1] == voter.term  # Its no-op is entry 3 now, and nobody else has it.
    voter.acknowledge(3, 3, term=1)
    voter.tick()
    assert voter.commit_index < 3


@fault("P7", "a conflicting tail of 200 entries takes 200 rounds")
def test_p7_conflicting_tail_is_found_in_a_few_rounds(voter: Side) -> None:
    """The leader, played here, has one old entry in common with us and a long tail of term 3."""
    voter.append_from(2, (1, 0), named("a") + named("z" * 200, term=2))
    voter.tick()
    previous, rounds = 202, 0
    while previous > 2:
        voter.take_sent()
        voter.append_from(3, (previous, 3), [], term=3)
        voter.tick()
        ((_, answer),) = voter.take_sent("next_node_idx")
        assert (answer["success"], answer["reset"]) == (False, True)
        previous = answer["next_node_idx"] - 1
        rounds += 1
        assert rounds <= 5


class Bomb:
    """A pickle that makes a folder when it is loaded, as it could run anything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._folder),)


def deliver(side: type[Side], body: bytes, clock: Clock) -> None:
    """What an unauthenticated peer sends arrives where that side takes frames apart."""
    if side is OurSide:
        with pytest.raises(MalformedRaftFrame):
            decode_frame(body)
        return
    ours, theirs = socket.socketpair()
    with theirs:
        poller = PollPoller()
        ours.setblocking(False)
        connection = TcpConnection(poller, lambda _message: None, socket=ours)
        theirs.sendall(struct.pack("i", len(body)) + body)
        poller.poll(0)
        connection.disconnect()


@fault("P9", "a pickle from the network is executed")
@pytest.mark.parametrize("wrapped", ["as it is", "compressed"])
def test_p9_what_a_stranger_sends_is_never_run(
    side: type[Side], tmp_path: Path, clock: Clock, wrapped: str
) -> None:
    folder = tmp_path / "executed"
    body = pickle.dumps(Bomb(folder))
    if side is StockSide or wrapped == "compressed":
        body = zlib.compress(body)
    deliver(side, body, clock)
    assert not folder.exists()


@fault("P9", "a pickle in an entry is executed by every voter")
def test_p9_what_an_entry_holds_is_never_run(voter: Side, tmp_path: Path) -> None:
    folder = tmp_path / "executed"
    bomb = b"\x00" + pickle.dumps(Bomb(folder))
    entries = {"entries": [(bomb, 2, 1)], "prevLogIdx": 1, "prevLogTerm": 0}
    voter.receive(2, {"type": "append_entries", "term": 1, "commit_index": 2, **entries})
    voter.drive(1)
    assert not folder.exists()


def over_the_wire(side: Side, message: Message) -> Message:
    """As the receiver gets it."""
    if isinstance(side, OurSide):
        decoded = decode_frame(MessageEncoder().encode(message)[4:])
        assert isinstance(decoded, dict)
        return decoded
    loaded: Message = pickle.loads(pickle.dumps(message, 2))
    return loaded


@fault("P12", "a command of a batch's length is cut into pieces that are not what was sent")
def test_p12_large_command_arrives_without_an_error(
    voter: Side,
    side: type[Side],
    tmp_path: Path,
    clock: Clock,
    closing: Callable[[Side], Side],
) -> None:
    """A little below a MiB, the most that we accept, and a multiple of the stock batch."""
    follower = closing(side(tmp_path / "follower", clock))
    name = b"x" * ((1 << 20) - len(voter.command(b"x")) - 4)
    voter.become_leader()
    voter.propose(name, lambda _result, _reason: None)
    errors = []
    for _ in range(3):
        clock.advance(0.2)
        voter.tick()
        for to, message in voter.take_sent("append_entries"):
            try:
                if to == 2:
                    follower.receive(2, over_the_wire(voter, message))
            except Exception as error:  # noqa: BLE001 - of whatever kind
                errors.append(error)
    assert errors == []
    assert name in [entry for entry, _ in follower.log()]


def assert_acknowledged_up_to(voter: Side, index: int) -> None:
    answers = [message for _, message in voter.take_sent("next_node_idx")]
    if not answers[-1]["success"] or answers[-1]["next_node_idx"] != index + 1:
        raise RuntimeError(f"the voter did not acknowledge entry {index}: {answers}")


def lead_again(voter: Side) -> None:
    voter.transport.disconnect(voter.peer(2))  # The leader of term 2 is gone.
    voter.transport.connect(voter.peer(2))
    voter.become_leader()
