"""Metadata writes of 200 bytes, fsynced on a majority of three: Quorate beside etcd and ZooKeeper.

All three write a key of 20 bytes and a value of 200: ``Put`` in etcd, ``setData`` in ZooKeeper, in
Quorate a configuration value (``ConfigSet``), its closest record. One client process writes in a
closed loop; it and three servers share the machine. The columns are

    quorate         as by default, with mutual TLS; ``QuorumClient``
    quorate plain   the same on loopback without TLS
    etcd            without TLS; grpcio
    etcd bare       the same servers by a client that costs as little as can be
    ZooKeeper       without TLS; kazoo
    ZooKeeper bare  the same as with etcd

and the ratios are of ``quorate`` to etcd and ZooKeeper by the libraries that programs use. A peer
that is not installed is left out. Goals stand beside for reference: nothing fails by a time.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import uvloop

from bench._support import Bench
from bench.peers import cases
from bench.peers.cases import Contestant, Restart, memory_per_node
from bench.peers.comparison import PLAIN, Comparison
from bench.peers.contender import Cluster, Unavailable
from bench.peers.etcd import EtcdCluster, find_etcd
from bench.peers.processes import Memory, fdatasync_ms
from bench.peers.quorate import QuorateCluster
from bench.peers.zookeeper import ZooKeeperCluster, find_zookeeper

MakeCluster = Callable[[Path], Cluster]
"""A function that makes a cluster in the folder for its data and logs."""

PARTITIONS = 200_000
WRITING_S = 5.0


def plain(folder: Path) -> Cluster:
    return QuorateCluster(folder, name=PLAIN, secure=False)


def installed_peers() -> list[MakeCluster]:
    """Makers of the peers' clusters; says in one line why one is left out."""
    peers: list[MakeCluster] = []
    try:
        etcd = find_etcd()
        peers.append(lambda folder: EtcdCluster(folder, etcd))
    except Unavailable as missing:
        print(f"etcd is left out: {missing}", flush=True)
    try:
        zookeeper = find_zookeeper()
        peers.append(lambda folder: ZooKeeperCluster(folder, zookeeper))
    except Unavailable as missing:
        print(f"ZooKeeper is left out: {missing}", flush=True)
    return peers


@contextlib.asynccontextmanager
async def running(folder: Path, makers: Sequence[MakeCluster]) -> AsyncIterator[list[Cluster]]:
    """The clusters, started one after another."""
    async with contextlib.AsyncExitStack() as stack:
        clusters: list[Cluster] = []
        for make in makers:
            cluster_folder = folder / str(len(clusters))
            cluster_folder.mkdir(parents=True)
            cluster = make(cluster_folder)
            stack.push_async_callback(cluster.stop)
            await cluster.start()
            clusters.append(cluster)
        yield clusters


@contextlib.asynccontextmanager
async def connected(clusters: Sequence[Cluster]) -> AsyncIterator[list[Contestant]]:
    """A client of each, and the second one of those that have two."""
    async with contextlib.AsyncExitStack() as stack:
        contestants = []
        for cluster in clusters:
            clients = {
                cluster.name: await cluster.connect(),
                f"{cluster.name} bare": await cluster.connect_bare(),
            }
            for name, client in clients.items():
                if client is not None:
                    stack.push_async_callback(client.close)
                    contestants.append(Contestant(name, cluster, client))
        yield contestants


async def compare(bench: Bench, folder: Path) -> None:
    table = Comparison(bench)
    peers = installed_peers()
    bench.figures["fdatasync p50 ms"] = sync_ms = fdatasync_ms(folder)
    print(f"the disk syncs 4 KiB that were appended to a file in {sync_ms:.2g} ms", flush=True)
    async with running(folder / "writes", [QuorateCluster, plain, *peers]) as clusters:
        await cases.idle_cpu(table, clusters, bench.pick(full=5.0, quick=2.0))
        cases.memory_rows(table, "idle", {each.name: memory_per_node(each) for each in clusters})
        for cluster in clusters:
            await cluster.create_keys()
        async with connected(clusters) as contestants:
            await cases.writes(bench, table, contestants)
            await cases.updates(bench, table, contestants)
        after = {each.name: memory_per_node(each) for each in clusters}
        cases.memory_rows(table, "after that load", after)
        kills = {
            cluster: bench.pick(full=20 if isinstance(cluster, QuorateCluster) else 5, quick=2)
            for cluster in clusters
        }
        await cases.failover(table, kills)
        if not bench.quick:
            await cases.silence(table, {cluster: kills[cluster] // 3 for cluster in clusters})
    makers = [QuorateCluster, *bench.pick(full=peers, quick=[])]
    await with_all_partitions(bench, table, folder, makers)


async def with_all_partitions(
    bench: Bench, table: Comparison, folder: Path, makers: Sequence[MakeCluster]
) -> None:
    """Memory and restarts of nodes that hold the states of all partitions."""
    loaded, later = f"{PARTITIONS:,} partitions", f"{WRITING_S:g} s of writes later"
    memory: dict[str, dict[str, Memory]] = {loaded: {}, later: {}}
    restarts: dict[str, dict[str, list[Restart]]] = {loaded: {}, later: {}}

    async def measure(when: str, cluster: Cluster) -> None:
        await cases.until_whole(cluster)
        memory[when][cluster.name] = memory_per_node(cluster)
        times = bench.repetitions if isinstance(cluster, QuorateCluster) else 1
        restarts[when][cluster.name] = [await cases.restart(cluster) for _ in range(times)]

    for number, make in enumerate(makers):
        async with running(folder / f"partitions-{number}", [make]) as (cluster,):
            await cluster.create_leaves(PARTITIONS)
            await measure(loaded, cluster)
            await cluster.create_keys()
            async with connected([cluster]) as (contestant, *_):
                await contestant.client.write_for(WRITING_S, in_flight=100)
            await measure(later, cluster)
    for when in (loaded, later):
        cases.memory_rows(table, when, memory[when], "≤ 150")
        cases.restart_rows(table, when, restarts[when])


def main() -> None:
    bench = Bench.from_command_line(
        "Quorum writes", "200-byte values, fsynced on a majority of three, beside etcd, ZooKeeper"
    )
    folder = Path(tempfile.mkdtemp(prefix="quorum-writes-"))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(compare(bench, folder))
    except BaseException:
        print(f"the servers' logs are in {folder}", file=sys.stderr, flush=True)
        raise
    shutil.rmtree(folder)
    bench.finish()


if __name__ == "__main__":
    main()
