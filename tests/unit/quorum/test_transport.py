"""What a voter's transport says, without sockets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from quorate.common.types import VoterId
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.network.raft_connection import Connection
from quorate.quorum.raft.network.raft_frames import (
    LENGTH_BYTES,
    Message,
    decode_frame,
    encode_hello,
)
from quorate.quorum.raft.network.transport import VoterTransport
from quorate_proto.v1.raft_pb2 import RaftHello, RaftRefusal
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import Clock, stopped_clock

CLUSTER = "test"


class Kept:
    """A connection that keeps what is sent."""

    def __init__(self, voter_id: int = 0) -> None:
        self.voter_id = voter_id
        self.introduced = False
        self.closed = False
        self.principal = None
        self.peer_host = "peer"
        self.backlog_bytes = 0
        self.sent: list[RaftHello | RaftRefusal | Message] = []

    def send(self, frame: bytes) -> None:
        self.sent.append(decode_frame(frame[LENGTH_BYTES:]))

    def close(self, reason: str) -> None:
        self.closed = True


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def lone(tmp_path: Path, clock: Clock) -> Iterator[LoneNode]:
    node = LoneNode(tmp_path / "voter")
    yield node
    node.close()


def transport_of(lone: LoneNode, admission: Admission) -> VoterTransport:
    transport = VoterTransport(lone.node.poller, CLUSTER, lone.own, lone.others, admission)
    transport.setOnNodeConnectedCallback(lambda _node: None)
    return transport


def test_rule9_each_message_of_a_leader_says_when_it_was_sent(lone: LoneNode, clock: Clock) -> None:
    transport = transport_of(lone, lone.node.admission)
    connection = Kept(2)
    transport._connections[2] = cast(Connection, connection)
    heartbeat = {"type": "append_entries", "term": 1, "commit_index": 1, "serialized": None}
    transport.send(lone.others[0], heartbeat)
    clock.advance(1)
    transport.send(lone.others[0], heartbeat)
    messages = cast("list[dict[str, Any]]", connection.sent)
    assert [message["sent_s"] for message in messages] == [clock() - 1, clock()]


def test_who_heard_all_at_the_first_start_tells_them_that_it_expects_them(lone: LoneNode) -> None:
    """One of them may not hear another, and then cannot know by itself that it may begin."""
    configured = [msgspec.structs.replace(member, directory_id=b"") for member in lone.members]
    admissions = [Admission(member, configured, lambda: True) for member in lone.members]
    transport = transport_of(lone, admissions[0])
    second, third = Kept(), Kept()
    for admission, connection in ((admissions[1], second), (admissions[2], third)):
        hello = admission.hello_to(VoterId(1))
        hello.cluster_id, hello.format = CLUSTER, 1
        frame = encode_hello(hello)
        transport._on_frame(cast(Connection, connection), frame[LENGTH_BYTES:])
    assert admissions[0].takes_part
    said = [hello for hello in second.sent if isinstance(hello, RaftHello)]
    assert [hello.knows_receiver for hello in said] == [False, True]
    admissions[1].heard(said[-1])
    assert admissions[1].takes_part
