"""Frames between voters: round trips, and nothing but frames gets in (P9)."""

import contextlib
import pickle
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_connection import (
    MAX_HELLO_BYTES,
    MAX_STRANGER_BYTES,
    Connection,
)
from quorate.quorum.raft.network.raft_frames import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    MalformedRaftFrame,
    Message,
    MessageEncoder,
    decode_frame,
    encode_hello,
    frame_bytes,
)
from quorate_proto.v1.raft_pb2 import (
    RaftEntries,
    RaftFrame,
    RaftHello,
    RaftMessage,
    RaftRefusal,
)

TERMS = st.integers(0, 2**62)
INDEXES = st.integers(1, 2**40)
COMMANDS = st.binary(max_size=200).map(lambda body: b"\x00" + body) | st.just(b"\x01")
SENT_S = {"sent_s": st.floats(allow_nan=False)}


@st.composite
def append_entries(draw: st.DrawFn) -> Message:
    previous = draw(INDEXES)
    commands = draw(st.lists(st.tuples(COMMANDS, TERMS), max_size=8))
    return {
        **draw(st.fixed_dictionaries({}, optional=SENT_S)),
        "type": "append_entries",
        "term": draw(TERMS),
        "commit_index": draw(INDEXES),
        "prevLogIdx": previous,
        "prevLogTerm": draw(TERMS),
        "entries": [
            (command, previous + number, term) for number, (command, term) in enumerate(commands, 1)
        ],
    }


PIECES = st.tuples(st.binary(max_size=300), st.booleans(), st.booleans())
MESSAGES = st.one_of(
    append_entries(),
    st.fixed_dictionaries(
        {
            "type": st.just("append_entries"),
            "term": TERMS,
            "commit_index": INDEXES,
            "serialized": st.none() | PIECES,
        },
        optional=SENT_S,
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("next_node_idx"),
            "term": TERMS,
            "next_node_idx": INDEXES,
            "reset": st.booleans(),
            "success": st.booleans(),
        },
        optional=SENT_S,
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["request_vote", "pre_vote"]),
            "term": TERMS,
            "last_log_index": INDEXES,
            "last_log_term": TERMS,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["response_vote", "response_pre_vote", "timeout_now"]),
            "term": TERMS,
        }
    ),
)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4))
def test_p12_messages_come_back_as_they_went(messages: list[Message]) -> None:
    encoder = MessageEncoder()
    for message in messages:
        frame = encoder.encode(message)
        assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
        assert decode_frame(frame[LENGTH_BYTES:]) == message


@given(body=st.binary(max_size=400))
def test_p9_noise_is_refused_or_a_known_message(body: bytes) -> None:
    try:
        content = decode_frame(body)
    except MalformedRaftFrame:
        return
    assert isinstance(content, RaftHello | RaftRefusal) or content["type"] in (
        "append_entries",
        "next_node_idx",
        "request_vote",
        "response_vote",
        "pre_vote",
        "response_pre_vote",
    )


@given(message=MESSAGES, at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_p9_flipped_bits_never_raise_anything_else(message: Message, at: int, bit: int) -> None:
    body = bytearray(MessageEncoder().encode(message)[LENGTH_BYTES:])
    body[at % len(body)] ^= 1 << bit
    with contextlib.suppress(MalformedRaftFrame):
        decode_frame(bytes(body))


@pytest.mark.parametrize("kind", ["apply_command", "apply_command_response", "readonly", "add", ""])
def test_p9_other_messages_of_the_library_have_no_form(kind: str) -> None:
    frame = RaftFrame(message=RaftMessage(type=kind, term=1)).SerializeToString()
    with pytest.raises(MalformedRaftFrame):
        decode_frame(frame)
    with pytest.raises(ValueError, match="never sent"):
        MessageEncoder().encode({"type": kind, "term": 1})


@pytest.mark.parametrize("command", [b"", b"\x02membership", b"\x03version"])
def test_p9_only_regular_entries_are_taken(command: bytes) -> None:
    message = RaftMessage(
        type="append_entries",
        prev_log_index=4,
        entries=RaftEntries(first_index=5, terms=[1], commands=[command]),
    )
    with pytest.raises(MalformedRaftFrame, match="kind"):
        decode_frame(RaftFrame(message=message).SerializeToString())


def test_p9_entries_must_follow_the_previous_one() -> None:
    message = RaftMessage(
        type="append_entries",
        prev_log_index=4,
        entries=RaftEntries(first_index=7, terms=[1], commands=[b"\x00"]),
    )
    with pytest.raises(MalformedRaftFrame, match="do not follow"):
        decode_frame(RaftFrame(message=message).SerializeToString())


# --- connections --------------------------------------------------------------------------------


class Link:
    """A connection whose other end is a plain socket."""

    def __init__(self) -> None:
        self.poller = DrivenPoller()
        listener = socket.create_server(("127.0.0.1", 0))
        self.far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
        listener.close()
        near.setblocking(False)
        self.frames: list[bytes] = []
        self.reasons: list[str] = []
        self.connection = Connection(
            self.poller,
            near,
            connecting=False,
            on_connected=lambda _connection: None,
            on_frame=lambda _connection, body: self.take(body),
            on_closed=lambda _connection, reason: self.reasons.append(reason),
        )

    def take(self, body: bytes) -> None:
        decode_frame(body)
        self.frames.append(body)

    def receive(self, data: bytes) -> None:
        self.far.sendall(data)
        self.poller.wait(1)

    def close(self) -> None:
        self.connection.close("test is over")
        self.far.close()
        self.poller.close()


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    yield link
    link.close()


def test_frames_are_found_however_they_are_cut(link: Link) -> None:
    hello = encode_hello(RaftHello(cluster_id="cluster", voter_id=3))
    link.receive(hello[:2])
    link.receive(hello[2:9])
    link.receive(hello[9:] + hello + hello[:5])
    assert link.frames == [hello[LENGTH_BYTES:]] * 2
    assert link.reasons == []


def test_p9_a_strangers_frame_is_refused_by_its_length_alone(link: Link) -> None:
    link.receive((MAX_HELLO_BYTES + 1).to_bytes(LENGTH_BYTES, "big"))
    assert link.reasons == [
        f"malformed frame: a frame of {MAX_HELLO_BYTES + 1} bytes, {MAX_HELLO_BYTES} at most"
    ]


def test_p9_only_who_introduced_himself_may_send_long_frames(link: Link) -> None:
    link.connection.introduced = True
    link.receive((MAX_HELLO_BYTES + 1).to_bytes(LENGTH_BYTES, "big"))
    assert link.reasons == []


def test_p9_a_stranger_is_heard_for_a_while_only(link: Link) -> None:
    small = frame_bytes(RaftFrame(hello=RaftHello(cluster_id="x" * 1_000)))
    for _ in range(MAX_STRANGER_BYTES // len(small)):
        link.receive(small)
        assert link.reasons == []
    link.receive(small)
    assert link.reasons == [f"{MAX_STRANGER_BYTES} bytes without a hello"]


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n\r\n",
        frame_bytes(RaftFrame()),
        len(pickle.dumps({})).to_bytes(4, "big") + pickle.dumps({}),
    ],
)
def test_p9_what_is_no_frame_closes_the_connection(link: Link, data: bytes) -> None:
    link.receive(data)
    assert link.frames == []
    (reason,) = link.reasons
    assert "malformed frame" in reason


def test_peer_that_goes_is_noticed_once(link: Link) -> None:
    link.far.close()
    link.poller.wait(1)
    link.poller.wait(0)
    assert link.reasons == ["the peer closed the connection"]


def test_more_than_the_kernel_takes_arrives_whole(link: Link) -> None:
    frame = b"x" * (8 << 20)
    link.connection.send(frame)
    assert link.connection.backlog_bytes > 0
    received = bytearray()
    link.far.settimeout(5)
    while len(received) < len(frame):
        link.poller.wait(0)
        received += link.far.recv(1 << 20)
    assert received == frame
    assert link.connection.backlog_bytes == 0
