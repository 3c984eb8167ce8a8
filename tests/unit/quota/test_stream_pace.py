"""gRPC streams of a user over its quota of bytes go on at the pace of the quota."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.quota import shared_usage
from quorate.broker.quota.shared_usage import SharedUsage
from quorate.broker.quota.stream_pace import LEAST_FRAME_BYTES, StreamPace
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.broker.replication.services.range_write_service import WriteStream
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time

LIMIT = 1_000_000.0


def now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000


def usage() -> SharedUsage:
    return SharedUsage(QuotaWindow(2, 1), LIMIT, None)


async def test_streams_of_one_user_share_its_rate() -> None:
    shared = usage()
    moved = 0

    async def stream() -> None:
        nonlocal moved
        pace = StreamPace(lambda: shared, now_ms)
        while True:
            await pace.wait()
            size = pace.frame_bytes(1 << 20)
            pace.count(size)
            moved += size

    streams = [asyncio.ensure_future(stream()) for _ in range(5)]
    await pass_time(60)
    for one in streams:
        one.cancel()
    assert 0.85 * LIMIT < moved / 60 < 1.1 * LIMIT


async def test_without_a_quota_nothing_waits_and_frames_are_as_large_as_asked_for() -> None:
    pace = StreamPace()
    await pace.wait()
    pace.count(1 << 40)
    assert pace.frame_bytes(1 << 20) == 1 << 20


async def test_frames_are_parts_of_a_second_of_the_quota() -> None:
    assert StreamPace(usage, now_ms).frame_bytes(16 << 20) == 250_000
    slow = SharedUsage(QuotaWindow(2, 1), 10.0, None)
    assert StreamPace(lambda: slow, now_ms).frame_bytes(16 << 20) == LEAST_FRAME_BYTES


async def test_with_too_many_that_wait_a_stream_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_usage, "WAITING_MAX", 1)
    shared = usage()
    shared.use(10 * LIMIT, now_ms())
    first = asyncio.ensure_future(StreamPace(lambda: shared, now_ms).wait())
    await asyncio.sleep(0)
    with pytest.raises(KafkaError) as refused:
        await StreamPace(lambda: shared, now_ms).wait()
    assert refused.value.code == errors_pb2.THROTTLING_QUOTA_EXCEEDED
    first.cancel()
    await asyncio.sleep(0)
    assert shared.take_place(), "who goes leaves its place"


async def test_frames_of_a_writer_are_taken_at_its_pace() -> None:
    shared = usage()
    taken: list[float] = []

    async def append(frame: bytes) -> bytes:
        taken.append(now_ms())
        return frame

    async def frames() -> AsyncIterator[bytes]:
        for _ in range(12):
            yield bytes(500_000)

    begun_ms = now_ms()
    stream = WriteStream(append, StreamPace(lambda: shared, now_ms))
    await stream.take(frames())
    assert len(taken) == 12
    assert 4_000 < taken[-1] - begun_ms < 6_000
