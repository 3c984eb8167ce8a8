"""Frames come out of a stream as they went in, however the network cuts it."""

import random

import pytest

from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.streams.frame_reader import FrameReader
from quorate.broker.replication.streams.packed_codec import LENGTH

BUFFER = 256 << 10


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


def read(reader: FrameReader, data: bytes, sizes: list[int]) -> list[bytes]:
    """Receive ``data`` in pieces of at most these sizes, over and over."""
    found: list[bytes] = []
    at = turn = 0
    while at < len(data):
        room = reader.buffer()
        assert len(room), "a connection with no room to receive counts as closed"
        piece = data[at : at + min(len(room), sizes[turn % len(sizes)])]
        room[: len(piece)] = piece
        found += [bytes(frame) for frame in reader.received(len(piece))]
        at += len(piece)
        turn += 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_all_sizes_arrive_whole(seed: int) -> None:
    chance = random.Random(seed)
    limits = [0, 1, 40, 3_000, BUFFER - 5, BUFFER - 4, BUFFER - 3, BUFFER + 9, 3 * BUFFER]
    frames = [chance.randbytes(chance.choice(limits)) for _ in range(30)]
    sizes = [chance.choice([1_000, 4_096, BUFFER, 10 * BUFFER]) for _ in range(5)]
    assert read(FrameReader(1 << 20), stream_of(frames), sizes) == frames


def test_frames_arrive_whole_byte_by_byte() -> None:
    frames = [b"", b"a", b"four", b"x" * 300]
    assert read(FrameReader(1 << 20), stream_of(frames), [1]) == frames


def test_frames_stay_as_they_are_when_more_is_received() -> None:
    reader = FrameReader(1 << 20)
    data = stream_of([b"first" * 9])
    reader.buffer()[: len(data)] = data
    (frame,) = reader.received(len(data))
    assert read(reader, stream_of([b"other" * 9]), [100]) == [b"other" * 9]
    assert frame == b"first" * 9


@pytest.mark.parametrize("length", [65, 2**32 - 1])
def test_a_frame_that_is_too_large_is_refused_before_it_is_received(length: int) -> None:
    reader = FrameReader(64)
    with pytest.raises(MalformedFrame, match=f"a frame of {length} bytes, 64 are allowed"):
        read(reader, LENGTH.pack(length), [100])
