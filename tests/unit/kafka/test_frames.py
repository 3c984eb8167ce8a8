"""Frames come out whole and in order however bytes arrive; no size is believed unchecked."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.cursor import MalformedRequest
from broker.kafka.frames import RECEIVE_BUFFER_BYTES, FrameAssembler
from tests.support.kafka_wire import sized

MAX = 1 << 20


def feed(assembler: FrameAssembler, data: bytes, cuts: list[int]) -> list[bytes]:
    """Puts ``data`` in pieces as a socket would; ``cuts``: sizes, repeated as often as needed."""
    frames = []
    turn = 0
    while data:
        buffer = assembler.buffer()
        count = min(len(buffer), cuts[turn % len(cuts)], len(data))
        turn += 1
        buffer[:count] = data[:count]
        data = data[count:]
        frames += [bytes(frame) for frame in assembler.received(count)]
    return frames


@given(
    frames=st.lists(st.binary(min_size=8, max_size=300), max_size=20),
    cuts=st.lists(st.integers(1, 400), min_size=1),
)
def test_frames_come_out_whole_however_bytes_are_split(
    frames: list[bytes], cuts: list[int]
) -> None:
    assert feed(FrameAssembler(MAX), b"".join(map(sized, frames)), cuts) == frames


def test_every_place_to_cut_a_stream() -> None:
    frames = [b"a" * 300, b"b" * 517, b"c" * 1030]
    data = b"".join(map(sized, frames))
    for first in range(1, len(data)):
        assert feed(FrameAssembler(MAX), data, [first, len(data)]) == frames


@given(
    sizes=st.lists(st.integers(8, 3 * RECEIVE_BUFFER_BYTES), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 2 * RECEIVE_BUFFER_BYTES), min_size=1),
)
def test_frames_larger_than_the_receive_buffer(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([index]) * size for index, size in enumerate(sizes)]
    cuts = [max(cut, 997) for cut in cuts]
    assert feed(FrameAssembler(MAX), b"".join(map(sized, frames)), cuts) == frames


def test_remainder_of_a_large_frame_is_received_in_place() -> None:
    assembler = FrameAssembler(MAX)
    frame = bytes(range(256)) * 2048
    first = sized(frame)[:RECEIVE_BUFFER_BYTES]
    assembler.buffer()[: len(first)] = first
    assert assembler.received(len(first)) == []
    rest = assembler.buffer()
    assert len(rest) == len(frame) + 4 - len(first)
    rest[:] = sized(frame)[len(first) :]
    (whole,) = assembler.received(len(rest))
    assert whole == frame
    assert whole.obj is rest.obj


def test_frames_are_writable_and_their_own() -> None:
    assembler = FrameAssembler(MAX)
    data = sized(b"a" * 10) + sized(b"b" * 10)
    assembler.buffer()[: len(data)] = data
    first, second = assembler.received(len(data))
    first[:] = b"c" * 10
    assert second == b"b" * 10


@pytest.mark.parametrize(
    ("prefix", "told"),
    [
        (struct.pack(">i", MAX + 1), f"{MAX + 1}.*socket.request.max.bytes={MAX}"),
        (struct.pack(">i", -1), "frame size -1"),
        (struct.pack(">i", 7), "frame size 7"),
        (b"GET / HTTP/1.1\r\n", "b'GET '"),
        (bytes.fromhex("16030100"), "369295616"),
    ],
)
def test_a_bad_size_is_refused_with_its_value(prefix: bytes, told: str) -> None:
    assembler = FrameAssembler(MAX)
    assembler.buffer()[: len(prefix)] = prefix
    with pytest.raises(MalformedRequest, match=told):
        assembler.received(len(prefix))


def test_the_largest_frame_allowed_is_accepted() -> None:
    assert feed(FrameAssembler(MAX), sized(b"x" * MAX), [1 << 20]) == [b"x" * MAX]


def test_announcing_a_huge_frame_allocates_next_to_nothing() -> None:
    assembler = FrameAssembler(100 << 20)
    prefix = struct.pack(">i", 100 << 20)
    assembler.buffer()[: len(prefix)] = prefix
    tracemalloc.start()
    try:
        assembler.received(len(prefix))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert len(assembler.buffer()) == 100 << 20
