"""This bench measures what replication costs per batch.

Three replica managers run in one process, without connections of clients.

12 partitions with three replicas, ``log.flush=os``, acks=all. The figure is the CPU time of the
process per batch: append at the leader, two fetches over framed streams, two appends, two
acknowledgements, and the producer that waits here. A load of one batch at a time per partition is
what many slow producers make; with several, batches share commits and frames.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from bench._support import Bench
from tests.support.replica_cluster import ReplicaCluster, batch

_PARTITIONS: Final = 12
_PLACES: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


class Case(NamedTuple):
    """One load."""

    batch_bytes: int
    at_once: int
    """The batches that each partition has under way."""


class _Topic(NamedTuple):
    name: str
    leader: int


def main() -> None:
    bench = Bench.from_command_line(
        "Replication path", "CPU time per batch of three replica managers in one process"
    )
    batches = 2_400 if bench.quick else 12_000
    cases = [Case(200, 1), Case(200, 5), Case(16 << 10, 1), Case(16 << 10, 5)]
    for case in bench.pick(full=cases, quick=cases[:2]):
        samples = bench.repeat(partial(_measured, case, batches))
        bench.row({"batch bytes": case.batch_bytes, "at once": case.at_once}, samples)
    bench.finish()


def _measured(case: Case, batches: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_replicate(Path(folder), case, batches))


async def _replicate(folder: Path, case: Case, batches: int) -> dict[str, float]:
    async with ReplicaCluster(folder) as cluster:
        await cluster.start(1, 2, 3)
        topics = []
        for number in range(_PARTITIONS):
            replicas = _PLACES[number % len(_PLACES)]
            topics.append(_Topic(f"topic-{number}", replicas[0]))
            await cluster.create_topic(topics[-1].name, replicas)
        await _produce(cluster, topics, case, batches // 10)
        cpu_s, began_s = time.process_time(), time.perf_counter()
        await _produce(cluster, topics, case, batches)
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    return {"CPU us/batch": cpu_s / batches * 1e6, "batches/s": batches / wall_s}


async def _produce(cluster: ReplicaCluster, topics: list[_Topic], case: Case, batches: int) -> None:
    """Commit so many batches, evenly over the partitions."""
    data = batch("x" * case.batch_bytes)
    lanes = len(topics) * case.at_once

    async def one_after_the_other(topic: _Topic) -> None:
        for _ in range(batches // lanes):
            (outcome,) = await cluster.nodes[topic.leader].produce(topic.name, data)
            if outcome.error_code:
                raise RuntimeError(f"a batch was refused with error {outcome.error_code}")

    await asyncio.gather(
        *(one_after_the_other(topic) for topic in topics for _ in range(case.at_once))
    )


if __name__ == "__main__":
    main()
