"""A cluster of three etcd nodes."""

import asyncio
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.peers.contender import NODES, Client, Cluster, Unavailable, keys, leaves
from bench.peers.etcd_bare_client import BareEtcdWriter
from bench.peers.etcd_client import MAX_REQUEST_BYTES, EtcdClient, write_through
from bench.peers.processes import NodeProcesses
from tests.support.quorum_cluster import free_ports


def find_etcd() -> str:
    """Path of the server: ``$ETCD``, or ``etcd`` on the PATH.

    Raises:
        Unavailable: there is none.
    """
    named = os.environ.get("ETCD", "etcd")
    found = shutil.which(named)
    if found is None:
        raise Unavailable(f"no {named!r} on the PATH (Debian: etcd-server; or set ETCD)")
    return found


class EtcdCluster(Cluster):
    """fsync, heartbeat and election timeout as etcd has them by default."""

    name = "etcd"

    def __init__(self, folder: Path, etcd: str) -> None:
        self._etcd = etcd
        self._nodes = NodeProcesses(folder)
        ports = iter(free_ports(2 * len(NODES)))
        self._peer_urls = {node: f"http://127.0.0.1:{next(ports)}" for node in NODES}
        self._client_ports = {node: next(ports) for node in NODES}

    @property
    def pids(self) -> Mapping[int, int]:
        return self._nodes.pids

    async def start(self) -> None:
        for node in NODES:
            self.start_node(node)
        self._nodes.wait_until("etcd serves", lambda: all(map(self.is_caught_up, NODES)))

    async def stop(self) -> None:
        self._nodes.stop()

    def start_node(self, node: int) -> None:
        client_url = f"http://{self.address(node)}"
        flags = {
            "name": f"n{node}",
            "data-dir": str(self._nodes.folder / f"data-{node}"),
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": self._peer_urls[node],
            "initial-advertise-peer-urls": self._peer_urls[node],
            "initial-cluster": ",".join(f"n{each}={url}" for each, url in self._peer_urls.items()),
            "max-txn-ops": "20000",
            "max-request-bytes": str(MAX_REQUEST_BYTES),
            "logger": "zap",
            "log-level": "warn",
        }
        self._nodes.start(node, [self._etcd, *(f"--{name}={flag}" for name, flag in flags.items())])

    def kill(self, node: int) -> None:
        self._nodes.kill(node)

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self._client_ports[node]}"

    def is_caught_up(self, node: int) -> bool:
        """/health is a linearizable read: the node has applied what is committed."""
        return '"true"' in self._get(node, "health")

    def leader(self) -> int:
        for node in self._nodes.running:
            if "\netcd_server_is_leader 1\n" in self._get(node, "metrics"):
                return node
        raise RuntimeError(f"etcd has no leader:\n{self._nodes.logs()}")

    async def connect(self) -> EtcdClient:
        return EtcdClient(self.address(self.leader()))

    async def connect_bare(self) -> Client:
        return await BareEtcdWriter.connect(self._client_ports[self.leader()])

    async def create_keys(self) -> None:
        await self._put_all([keys()])

    async def create_leaves(self, count: int) -> None:
        await self._put_all(leaves(count, version=0))

    async def _put_all(self, batches: Iterable[list[tuple[str, str]]]) -> None:
        client = EtcdClient(self.address(self.leader()))
        for batch in batches:
            client.put_all(batch)
        await client.close()

    async def write_through(self) -> None:
        survivors = [self.address(node) for node in self._nodes.running]
        await asyncio.to_thread(write_through, survivors)

    def _get(self, node: int, page: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{self.address(node)}/{page}", timeout=2) as answer:
                return str(answer.read(), "utf-8")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return ""
