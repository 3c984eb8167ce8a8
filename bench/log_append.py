"""Appending to the log store: MB/s and commit latency by batch size, durability and partitions."""

import asyncio
import itertools
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import lmdb
import uvloop
from crc32c import crc32c

from bench._support import Bench, percentile
from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog, StoredLog
from quorate.broker.log.options import Flush
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition

_IN_FLIGHT_BYTES: Final = 2 << 20
"""Appended and not yet flushed: one group being committed, one gathering."""
_HEADER_BYTES: Final = 61
_KEY: Final = struct.Struct(">IQH")


def make_batch(size: int) -> bytes:
    """A batch of ``size`` bytes whose one record nobody looks at."""
    body = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + os.urandom(size - _HEADER_BYTES)
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


class Appender:
    """Appends round robin over partitions, with a bounded number of batches unflushed."""

    def __init__(self, window: int) -> None:
        self.latencies: list[float] = []
        self._window = window
        self._started_at: dict[tuple[int, int], float] = {}
        self._acknowledged: dict[int, int] = {}
        self._room = asyncio.Event()

    def on_flushed(self, logs: Sequence[StoredLog]) -> None:
        now = time.perf_counter()
        for log in logs:
            reported = range(self._acknowledged.get(log.number, 0), log.flushed_offset)
            self._acknowledged[log.number] = log.flushed_offset
            self.latencies.extend(now - self._started_at.pop((log.number, o)) for o in reported)
        self._room.set()

    def on_failed(self, error: Exception) -> None:
        raise error

    async def run(self, logs: Sequence[PartitionLog], batch: bytes, batches: int) -> float:
        """Seconds until everything was flushed."""
        start = time.perf_counter()
        for log in itertools.islice(itertools.cycle(logs), batches):
            await self._until_fewer_than(self._window)
            appended = log.append_as_leader(batch, LeaderEpoch(0))
            self._started_at[log.number, appended.base_offset] = time.perf_counter()
        await self._until_fewer_than(1)
        return time.perf_counter() - start

    async def _until_fewer_than(self, count: int) -> None:
        while len(self._started_at) >= count:
            self._room.clear()
            await self._room.wait()


async def append_all(
    directory: Path, flush: Flush, batch_bytes: int, partitions: int, total_bytes: int
) -> dict[str, float]:
    appender = Appender(max(2, _IN_FLIGHT_BYTES // batch_bytes))
    callbacks = LogCallbacks(appender.on_flushed, appender.on_failed)
    store = await LogManager.open(directory, LogOptions(flush=flush), callbacks)
    topic = TopicId(os.urandom(16))
    logs = [store.create(TopicIdPartition(topic, p), "bench") for p in range(partitions)]
    await asyncio.sleep(0.1)  # the table is written, outside of what is measured
    elapsed = await appender.run(logs, make_batch(batch_bytes), total_bytes // batch_bytes)
    await store.close()
    return {
        "MB/s": total_bytes / elapsed / 1e6,
        "p50 ms": percentile(appender.latencies, 0.5) * 1e3,
        "p99 ms": percentile(appender.latencies, 0.99) * 1e3,
    }


def measure(flush: Flush, batch_bytes: int, partitions: int, total_bytes: int) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
    try:
        return uvloop.run(append_all(directory, flush, batch_bytes, partitions, total_bytes))
    finally:
        shutil.rmtree(directory)


def measure_raw(flush: Flush, batch_bytes: int, partitions: int, total_bytes: int) -> float:
    """MB/s of LMDB alone: the same keys and values, in transactions of 1 MiB, without the rest."""
    directory = tempfile.mkdtemp(prefix="quorate-bench-")
    value = make_batch(batch_bytes)
    group = max(1, (1 << 20) // batch_bytes)
    try:
        with lmdb.open(
            f"{directory}/raw.mdb",
            subdir=False,
            map_size=4 * total_bytes,
            meminit=False,
            sync=flush == "sync",
        ) as environment:
            start = time.perf_counter()
            for first in range(0, total_bytes // batch_bytes, group):
                with environment.begin(write=True) as transaction:
                    numbers = range(first, first + group)
                    transaction.cursor().putmulti(
                        [(_KEY.pack(n % partitions, n // partitions, 0), value) for n in numbers]
                    )
            return total_bytes / (time.perf_counter() - start) / 1e6
    finally:
        shutil.rmtree(directory)


def measure_both(
    flush: Flush, batch_bytes: int, partitions: int, total_bytes: int
) -> dict[str, float]:
    """The store, and right after it what it is built on: only their ratio is worth quoting."""
    figures = measure(flush, batch_bytes, partitions, total_bytes)
    raw = measure_raw(flush, batch_bytes, partitions, total_bytes)
    return figures | {"LMDB MB/s": raw, "of LMDB": figures["MB/s"] / raw}


def main() -> None:
    bench = Bench.from_command_line(
        "Log append", "group commit of record batches, 2 MiB in flight; latency append to flushed"
    )
    modes: tuple[Flush, ...] = ("sync", "os")
    partition_counts = bench.pick(full=(1, 1000), quick=(1000,))
    sizes_kib = bench.pick(full=(16, 64, 256, 1024), quick=(64, 1024))
    for flush, partitions, size_kib in itertools.product(modes, partition_counts, sizes_kib):
        total_bytes = bench.pick(full=512 << 20, quick=128 << 20)
        figures = bench.repeat(
            partial(measure_both, flush, size_kib << 10, partitions, total_bytes)
        )
        bench.row({"flush": flush, "partitions": partitions, "batch KiB": size_kib}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
