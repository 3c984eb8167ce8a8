"""Frames are whole and in order however their bytes arrive, and every size is checked."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.broker.kafka.wire.frame_assembler import RECEIVE_BUFFER_BYTES, FrameAssembler
from quorate.broker.kafka.wire.primitives import MalformedRequest
from tests.support.examples import examples
from tests.support.kafka_wire import sized

MAX = 1 << 20


class Purse:
    """Memory that gives ``left`` bytes to large frames, and remembers what was held."""

    def __init__(self, left: int = 1 << 40) -> None:
        self.left = left
        self.held = 0
        self.wholes = 0

    def hold(self, count: int) -> None:
        self.held += count

    def take(self, count: int) -> bool:
        if count > self.left:
            return False
        self.left -= count
        self.held += count
        return True

    def whole(self) -> None:
        self.wholes += 1


def assembling(max_frame_bytes: int = MAX, purse: Purse | None = None) -> FrameAssembler:
    receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    return FrameAssembler(max_frame_bytes, receive_buffer, purse or Purse())


def feed(assembler: FrameAssembler, data: bytes, cuts: list[int]) -> list[bytes]:
    """Feed ``data`` in pieces like a socket. The sizes in ``cuts`` are repeated as needed."""
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
    assert feed(assembling(), b"".join(map(sized, frames)), cuts) == frames


def test_every_place_to_cut_a_stream() -> None:
    frames = [b"a" * 300, b"b" * 517, b"c" * 1030]
    data = b"".join(map(sized, frames))
    for first in range(1, len(data)):
        assert feed(assembling(), data, [first, len(data)]) == frames


@given(
    sizes=st.lists(st.integers(8, 3 * RECEIVE_BUFFER_BYTES), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 2 * RECEIVE_BUFFER_BYTES), min_size=1),
)
def test_frames_larger_than_the_receive_buffer(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([index]) * size for index, size in enumerate(sizes)]
    cuts = [max(cut, 997) for cut in cuts]
    assert feed(assembling(), b"".join(map(sized, frames)), cuts) == frames


def test_remainder_of_a_large_frame_is_received_in_place() -> None:
    assembler = assembling()
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
    assembler = assembling()
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
    assembler = assembling()
    assembler.buffer()[: len(prefix)] = prefix
    with pytest.raises(MalformedRequest, match=told):
        assembler.received(len(prefix))


def test_the_largest_frame_allowed_is_accepted() -> None:
    assert feed(assembling(), sized(b"x" * MAX), [1 << 20]) == [b"x" * MAX]


def test_announcing_a_huge_frame_allocates_next_to_nothing() -> None:
    assembler = assembling(100 << 20)
    prefix = struct.pack(">i", 100 << 20)
    assembler.buffer()[: len(prefix)] = prefix
    tracemalloc.start()
    try:
        assembler.received(len(prefix))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert len(assembler.buffer()) == 1 << 20


@given(
    sizes=st.lists(st.integers(8, 9 << 20), min_size=1, max_size=3),
    cut=st.integers(100_000, 5 << 20),
)
@settings(max_examples=examples(10))
def test_what_is_held_is_at_most_twice_what_arrived_of_a_large_frame(
    sizes: list[int], cut: int
) -> None:
    purse = Purse()
    assembler = assembling(10 << 20, purse)
    for size in sizes:
        purse.held = arrived = 0
        data = memoryview(sized(bytes(size)))
        while data:
            buffer = assembler.buffer()
            count = min(len(buffer), cut, len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            arrived += count
            frames = assembler.received(count)
            assert purse.held <= max(4 << 20, 2 * arrived)
        assert [len(frame) for frame in frames] == [size]
        assert purse.held == size


def test_a_large_frame_waits_for_memory_and_goes_on_where_it_was() -> None:
    purse = Purse(left=0)
    assembler = assembling(10 << 20, purse)
    frame = bytes(range(250)) * 40_000
    data = sized(frame)
    assembler.buffer()[:1000] = data[:1000]
    assert assembler.received(1000) == []
    assert assembler.needs_memory
    assert len(assembler.buffer()) == 0
    assert not assembler.resume()
    scribbled_over = assembler._receive_buffer
    scribbled_over[:] = bytes(len(scribbled_over))
    purse.left = 5 << 20
    assert assembler.resume()
    assert feed_rest(assembler, data[1000:]) == []
    assert assembler.needs_memory
    purse.left = 100 << 20
    assert assembler.resume()
    (whole,) = feed_rest(assembler, data[4 + assembler._filled :])
    assert whole == frame
    assert purse.wholes == 1


def feed_rest(assembler: FrameAssembler, data: bytes) -> list[memoryview]:
    """Feed as much of ``data`` as there is memory for."""
    frames: list[memoryview] = []
    while data and not assembler.needs_memory:
        buffer = assembler.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames += assembler.received(count)
    return frames


def test_two_connections_share_the_buffer_that_they_receive_into() -> None:
    shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    ends = [FrameAssembler(MAX, shared, Purse()) for _ in range(2)]
    streams = [sized(bytes([65 + n]) * 300) * 3 for n in range(2)]
    frames: list[list[bytes]] = [[], []]
    for first in range(0, len(streams[0]), 7):
        for end, stream, found in zip(ends, streams, frames, strict=True):
            found += feed(end, stream[first : first + 7], [7])
    assert frames == [[b"A" * 300] * 3, [b"B" * 300] * 3]
