"""Metadata transactions of 200 bytes through the client, fsynced on a majority of three voters."""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

import uvloop

from bench._support import Bench, percentile
from metadata_log.codec import encode_transaction
from metadata_log.records import BrokerRegistration, Operation, Transaction
from metadata_log.types import BrokerId, Endpoint
from quorum.client import QuorumClient
from tests.support.quorum_cluster import QuorumCluster

TRANSACTION_BYTES = 200
INCARNATION_ID = b"bench" + bytes(11)


def registration(client: QuorumClient, incarnation_id: bytes) -> Operation:
    """A write that leaves the image as it is: the same broker registers again."""
    padding = ""
    while True:
        operation = Operation(
            records=(
                BrokerRegistration(
                    broker_id=BrokerId(1),
                    session_id=client.session_id,
                    incarnation_id=incarnation_id,
                    kafka=Endpoint("127.0.0.1", 9092),
                    grpc=Endpoint("127.0.0.1", 9192),
                    rack=padding,
                ),
            )
        )
        encoded = encode_transaction(
            Transaction(
                operations=(operation,),
                client_id=client.session_id,
                sequence=100_000,
                low_water=100_000,
                timestamp_ms=time.time_ns() // 1_000_000,
            )
        )
        if len(encoded) >= TRANSACTION_BYTES:
            return operation
        padding += "r" * (TRANSACTION_BYTES - len(encoded))


async def measure(client: QuorumClient, in_flight: int, seconds: float) -> dict[str, float]:
    """Operations per second and latencies with that many transactions in flight."""
    operation = registration(client, INCARNATION_ID)
    await client.transact([operation])
    latencies_ms: list[float] = []
    deadline = time.perf_counter() + seconds

    async def write() -> None:
        while (started := time.perf_counter()) < deadline:
            result = await client.transact([operation])
            assert result.ok, result
            latencies_ms.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(in_flight)))
    elapsed = time.perf_counter() - started
    return {
        "ops/s": len(latencies_ms) / elapsed,
        "p50 ms": percentile(latencies_ms, 0.5),
        "p99 ms": percentile(latencies_ms, 0.99),
    }


def run(bench: Bench, quorum: QuorumCluster) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client = runner.run(connect(quorum))
        seconds = bench.pick(full=3.0, quick=0.5)
        for in_flight in bench.pick(full=(1, 10, 100, 1000), quick=(1, 100)):
            figures = bench.repeat(partial(measure_once, runner, client, in_flight, seconds))
            bench.row({"voters": len(quorum.voter_ids), "in flight": in_flight}, figures)
        runner.run(client.close())


async def connect(quorum: QuorumCluster) -> QuorumClient:
    client = QuorumClient(quorum.addresses, description="bench", session_timeout_ms=30_000)
    await client.start(deadline_ms=30_000)
    return client


def measure_once(
    runner: asyncio.Runner, client: QuorumClient, in_flight: int, seconds: float
) -> dict[str, float]:
    return runner.run(measure(client, in_flight, seconds))


def main() -> None:
    bench = Bench.from_command_line(
        "Quorum writes", f"{TRANSACTION_BYTES}-byte transactions, fsynced on a majority"
    )
    for voters in bench.pick(full=(1, 3), quick=(3,)):
        with (
            tempfile.TemporaryDirectory() as folder,
            QuorumCluster(Path(folder), voters=voters) as quorum,
        ):
            run(bench, quorum)
    bench.finish()


if __name__ == "__main__":
    main()
