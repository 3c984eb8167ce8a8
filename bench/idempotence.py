"""Measures what it costs to take an idempotent producer's batches once: CPU per append, memory,
restart.

CPU time, with kinds measured in turn: the differences are small, and the machine may be shared.
"""

import asyncio
import shutil
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from crc32c import crc32c

from bench._kafka_load import in_own_process
from bench._kafka_producers import Stream, produce
from bench._nodes import cpu_by_pid, cpu_since
from bench._support import Bench, median_row
from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog
from quorate.client.results import NewTopic
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from quorate.testing import RunningCluster, running_cluster

BATCH_BYTES: Final = 1024
KINDS: Final = {"plain": 0, "1 producer": 1, "10,000 producers": 10_000}
_HEADER_BYTES: Final = 61
_EPOCH: Final = LeaderEpoch(0)


def make_batch(producer_id: int = -1, sequence: int = -1, size: int = BATCH_BYTES) -> bytes:
    """A batch whose one record nobody looks at."""
    epoch = 0 if producer_id >= 0 else -1
    checked = struct.pack(">hiqqqhii", 0, 0, 1, 1, producer_id, epoch, sequence, 1)
    checked += bytes(size - _HEADER_BYTES)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def batches_of(producers: int, count: int) -> list[bytes]:
    """``count`` batches, of so many producers in turn; 0: of none."""
    if not producers:
        return [make_batch()] * count
    return [make_batch(number % producers, number // producers) for number in range(count)]


async def open_log(directory: Path) -> tuple[LogManager, PartitionLog]:
    options = LogOptions(flush="os", tail_bytes=0)
    store = await LogManager.open(directory, options, LogCallbacks(lambda _: None, _raise))
    tip = TopicIdPartition(TopicId(b"idempotence-test"), 0)
    return store, store.create(tip, "bench")


def _raise(error: Exception) -> None:
    raise error


async def append_and_restart(producers: int, count: int) -> dict[str, float]:
    """µs of CPU per append, and per batch of a restart, that of the disk's commits left out."""
    batches = batches_of(producers, count)
    directory = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
    try:
        store, log = await open_log(directory)
        spent_s = 0.0
        for first in range(0, count, 1000):
            begin = time.process_time()
            for batch in batches[first : first + 1000]:
                log.append_as_leader(batch, _EPOCH)
            spent_s += time.process_time() - begin
            await store.writer.wait_for_room()
            await asyncio.sleep(0)
        await store.close()
        begin = time.process_time()
        store, log = await open_log(directory)
        restart_s = time.process_time() - begin
        assert log.log_end_offset == count
        await store.close()
    finally:
        shutil.rmtree(directory)
    return {"append CPU us": spent_s / count * 1e6, "restart CPU us": restart_s / count * 1e6}


def measure_log(producers: int, count: int) -> dict[str, float]:
    return asyncio.run(append_and_restart(producers, count))


async def bytes_per_producer(batches_each: int, producers: int) -> float:
    """Memory of what is remembered, the index of the log left out."""
    directory = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
    try:
        store, log = await open_log(directory)
        for batch in batches_of(producers, producers * batches_each):
            log.append_as_leader(batch, _EPOCH)
        await store.close()
        tracemalloc.start()
        store, log = await open_log(directory)
        with_them, _ = tracemalloc.get_traced_memory()
        log.producers.clear()
        without, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await store.close()
    finally:
        shutil.rmtree(directory)
    return (with_them - without) / producers


def broker_cpu(cluster: RunningCluster, topic: str, seconds: float, *, idempotent: bool) -> float:
    """Seconds of the broker's CPU per GB that librdkafka produces in batches of 16 KB."""
    with cluster.admin() as admin:
        new = NewTopic(name=topic, num_partitions=6, replication_factor=1)
        admin.create_topics([new])[0].raise_for_error()
    stream = Stream(
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=6,
        acks="all",
        records_per_batch=16,
        record_bytes=1_000,
        settings={
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5,
        },
    )
    before = cpu_by_pid(cluster)
    sent = in_own_process(produce, stream, seconds=seconds, in_flight=24)
    spent = cpu_since(cluster, before)
    return spent["brokers CPU s"] / (sent.batches * stream.payload_bytes) * 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Idempotent producers",
        "1 KiB batches into one log; 16 KB batches into one broker",
        arguments,
    )
    count = bench.pick(full=100_000, quick=20_000)
    for kind, producers in KINDS.items():
        figures = bench.repeat(partial(measure_log, producers, count))
        bench.row({"batches of": kind}, figures)
    for each in (1, 5):
        size = asyncio.run(bytes_per_producer(each, bench.pick(full=20_000, quick=5_000)))
        bench.row({"batches of": f"producers with {each}"}, {"bytes per producer": size})
    with running_cluster(config={"log.flush": "os"}) as cluster:
        seconds = bench.pick(full=3.0, quick=0.5)
        samples: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for repetition in range(bench.repetitions):
            for idempotent, kept in samples.items():
                topic = f"bench-{repetition}-{idempotent}".lower()
                spent = broker_cpu(cluster, topic, seconds, idempotent=idempotent)
                kept.append({"broker CPU s/GB": spent})
        for idempotent, kept in samples.items():
            case = "librdkafka, idempotent" if idempotent else "librdkafka"
            bench.row({"batches of": case}, median_row(kept))
    bench.finish()


if __name__ == "__main__":
    main()
