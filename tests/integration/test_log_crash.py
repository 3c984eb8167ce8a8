"""A log store whose process is killed, or whose disk fills up: nothing acknowledged is lost."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.broker.log import LogCallbacks, LogManager, LogOptions
from quorate.broker.log.batches.record_batch import patched
from quorate.broker.log.options import Flush
from quorate.common.types import LeaderEpoch, TopicIdPartition
from tests.support.log_appender import TOPIC_ID, payload

pytestmark = pytest.mark.integration

SEGMENT_BYTES = 4 << 20
ROUNDS = 10


def start(directory: Path, flush: Flush, seed: int, *limit: int) -> "subprocess.Popen[str]":
    arguments = [str(directory), flush, str(SEGMENT_BYTES), str(seed), *map(str, limit)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.log_appender", *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def acknowledged(lines: list[str]) -> dict[int, int]:
    """The newest flushed offset per partition in whole lines of output."""
    found: dict[int, int] = {}
    for line in lines:
        if line.endswith("\n") and ":" in line and not line.startswith("failed"):
            for word in line.split():
                partition, _, offset = word.partition(":")
                found[int(partition)] = int(offset)
    return found


async def check(directory: Path, flush: Flush, expected: dict[int, int]) -> None:
    """Every log holds its acknowledged batches, and every batch it holds is the right one."""
    options = LogOptions(flush=flush, segment_bytes=SEGMENT_BYTES, tail_bytes=0)
    store = await LogManager.open(directory, options, LogCallbacks(lambda _: None, lambda _: None))
    try:
        for partition, offset in expected.items():
            log = store.logs[TopicIdPartition(TOPIC_ID, partition)]
            assert log.log_end_offset >= offset
            for at in range(0, log.log_end_offset, 1 + log.log_end_offset // 40):
                written = patched(memoryview(payload(partition, at)), at, LeaderEpoch(at // 50))
                assert b"".join(log.read(at, 1, at + 1).chunks) == written
            starts = range(0, log.log_end_offset, 50)
            assert log.leader_epochs.entries == [(start // 50, start) for start in starts]
    finally:
        await store.close()


@pytest.mark.parametrize("flush", ["sync", pytest.param("os", marks=pytest.mark.slow)])
def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, flush: Flush) -> None:
    chance = random.Random(7)
    expected: dict[int, int] = {}
    for round_number in range(ROUNDS):
        process = start(tmp_path / "log", flush, round_number)
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(chance.randrange(1, 60))]
        finally:
            process.kill()
        lines += process.stdout.readlines()
        process.stdout.close()
        process.wait()
        expected.update(acknowledged(lines))
        # Every other time the next process opens what the killed one left, unseen by this one.
        if round_number % 2:
            asyncio.run(check(tmp_path / "log", flush, expected))
    assert sum(expected.values()) > 10 * ROUNDS


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_full_disk_stops_appends_and_keeps_what_was_acknowledged(
    tmp_path: Path, flush: Flush
) -> None:
    process = start(tmp_path / "log", flush, 1, SEGMENT_BYTES // 2)
    output, _ = process.communicate(timeout=60)
    lines = output.splitlines(keepends=True)
    assert process.returncode == 0
    assert lines[-1].startswith("failed ")
    expected = acknowledged(lines)
    assert sum(expected.values()) > 0
    asyncio.run(check(tmp_path / "log", flush, expected))
