"""A log folder of many sealed segments: opening it, and reading what is old, cold and warm."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Final

import lmdb
import uvloop

from bench._support import Bench
from bench.log_append import make_batch
from quorate.broker.log import ColdRead, LogCallbacks, LogManager, LogOptions, PartitionLog
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition

_SEGMENTS: Final = 50
_READ_BYTES: Final = 1 << 20
"""The size of one read, which is what consumers ask for per partition."""
_AT_A_TIME: Final = 8 << 20
"""The bytes that are appended before the next wait, so that the tail holds little else."""


async def opened(directory: Path, segment_bytes: int) -> LogManager:
    options = LogOptions(flush="os", segment_bytes=segment_bytes, tail_bytes=4 << 20)
    return await LogManager.open(directory, options, LogCallbacks(lambda _: None, _raise))


def _raise(error: Exception) -> None:
    raise error


async def fill(
    directory: Path, segments: int, segment_bytes: int, batch_bytes: int, partitions: int
) -> None:
    """Append round robin until that many segments are sealed."""
    store = await opened(directory, segment_bytes)
    topic = TopicId(os.urandom(16))
    logs = [store.create(TopicIdPartition(topic, p), "bench") for p in range(partitions)]
    batch = make_batch(batch_bytes)
    count = 0
    while store.segments.newest.id <= segments:
        for _ in range(_AT_A_TIME // batch_bytes):
            logs[count % partitions].append_as_leader(batch, LeaderEpoch(0))
            count += 1
        await store.writer.wait_for_room()
    await store.close()


def forget_footers(directory: Path) -> None:
    """Make it a folder whose segments have none: what a start then does is the key scan."""
    with lmdb.open(str(directory / "store.mdb"), subdir=False, max_dbs=8) as environment:
        segments = environment.open_db(b"segments")
        with environment.begin(segments, write=True) as transaction:
            for key in list(transaction.cursor().iternext(values=False)):
                transaction.put(key, b"\1")


def forget_pages(directory: Path) -> None:
    """Have nothing of the folder in the page cache, as after a start of the machine."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


async def open_once(
    directory: Path, segment_bytes: int, prepare: Callable[[Path], None]
) -> dict[str, float]:
    prepare(directory)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    store = await opened(directory, segment_bytes)
    elapsed, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    figures = {
        "open s": elapsed,
        "CPU s": cpu,
        "segments": float(len(store.segments.by_id)),
        "GB": sum(log.size_bytes for log in store.logs.values()) / 1e9,
    }
    await store.close()
    return figures


async def read_all(
    directory: Path, segment_bytes: int, *, cold: bool, logs_read: int
) -> dict[str, float]:
    """Each of the first logs from its start to its end, as consumers read it."""
    if cold:
        forget_pages(directory)
    store = await opened(directory, segment_bytes)
    size = waits = 0
    begun, begun_cpu = time.perf_counter(), time.process_time()
    for log in list(store.logs.values())[:logs_read]:
        at = log.log_start_offset
        while at < log.log_end_offset:
            try:
                read = log.read(at, _READ_BYTES, log.log_end_offset, wait=False)
            except ColdRead as missing:
                waits += 1
                await missing.load()
                read = log.read(at, _READ_BYTES, log.log_end_offset)
            at, size = read.next_offset, size + read.size
    elapsed, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    await store.close()
    return {"MB/s": size / elapsed / 1e6, "CPU s/GB": cpu / size * 1e9, "waits": float(waits)}


async def read_tail(
    directory: Path, segment_bytes: int, batch_bytes: int, *, in_memory: bool
) -> dict[str, float]:
    """Measure reads of what was just appended: out of the memory tail, or behind it out of LMDB."""
    store = await opened(directory, segment_bytes)
    tip = TopicIdPartition(TopicId(os.urandom(16)), 0)
    log = store.create(tip, "tail")
    batch = make_batch(batch_bytes)
    start = 0
    for number in range((16 << 20) // batch_bytes):
        appended = log.append_as_leader(batch, LeaderEpoch(0))
        if (number + 1) * batch_bytes <= (13 << 20):
            start = appended.base_offset
        await store.writer.wait_for_room()
    await store.delete(store.create(TopicIdPartition(tip.topic_id, 1), "barrier").tip)
    first, end = (start, log.log_end_offset) if in_memory else (0, start)
    rate = _rate(log, first, end)
    await store.delete(tip)
    await store.close()
    return {"MB/s": rate}


def _rate(log: PartitionLog, first: int, end: int) -> float:
    size = 0
    begun = time.perf_counter()
    for _ in range(10):
        at = first
        while at < end:
            read = log.read(at, _READ_BYTES, end)
            b"".join(read.chunks)  # The copy that sending it takes: the tail itself copies nothing.
            at, size = read.next_offset, size + read.size
    return size / (time.perf_counter() - begun) / 1e6


def main() -> None:
    bench = Bench.from_command_line(
        "Log recovery", "opening a folder of 50 segments, and reading it; cold: no page is cached"
    )
    segment_bytes = bench.pick(full=256 << 20, quick=16 << 20)
    for partitions, batch_kib in ((1000, 64), (1, 1024)):
        directory = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
        try:
            uvloop.run(fill(directory, _SEGMENTS, segment_bytes, batch_kib << 10, partitions))
            measure_all(bench, directory, segment_bytes, batch_kib, partitions)
        finally:
            shutil.rmtree(directory)
    bench.finish()


def measure_all(
    bench: Bench, directory: Path, segment_bytes: int, batch_kib: int, partitions: int
) -> None:
    cases: dict[str, Callable[[], Coroutine[None, None, dict[str, float]]]] = {
        f"open, {how}": partial(open_once, directory, segment_bytes, prepare)
        for how, prepare in _PREPARED.items()
    }
    read = partial(read_all, directory, segment_bytes, logs_read=max(1, partitions // 10))
    cases["read old, cold"] = partial(read, cold=True)
    cases["read old, warm"] = partial(read, cold=False)
    tail = partial(read_tail, directory, segment_bytes, batch_kib << 10)
    cases["read new, active segment"] = partial(tail, in_memory=False)
    cases["read new, memory tail"] = partial(tail, in_memory=True)
    for what, case in cases.items():
        figures = bench.repeat(partial(_run, case))
        bench.row({"what": what, "partitions": partitions, "batch KiB": batch_kib}, figures)


def _run(case: Callable[[], Coroutine[None, None, dict[str, float]]]) -> dict[str, float]:
    return uvloop.run(case())


def _cold_without_footers(directory: Path) -> None:
    forget_footers(directory)
    forget_pages(directory)


_PREPARED: Final[dict[str, Callable[[Path], None]]] = {
    "footers, cold": forget_pages,
    "footers, warm": lambda _: None,
    "key scan, cold": _cold_without_footers,
    "key scan, warm": forget_footers,
}


if __name__ == "__main__":
    main()
