"""A ZooKeeper ensemble of three servers."""

import asyncio
import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.contender import NODES, Client, Cluster, Unavailable, keys, leaves
from bench.peers.processes import NodeProcesses
from bench.peers.zookeeper_client import ZooKeeperClient, ZooKeeperError
from bench.peers.zookeeper_writers import BareWriter, KazooWriter
from tests.support.quorum_cluster import free_ports

MAX_REQUEST_BYTES: Final = 8 << 20
_DEBIAN_JARS: Final = Path("/usr/share/java")
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TRY_EVERY_S: Final = 0.02
_GIVE_UP_S: Final = 30.0

_LOGGING: Final = """
log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""


class ZooKeeperInstallation(NamedTuple):
    """The place of an installed ZooKeeper server."""

    java: str
    class_path: str


def find_zookeeper() -> ZooKeeperInstallation:
    """``java`` on the PATH, and the jars of ``$ZOOKEEPER_HOME/lib`` or of Debian's package.

    Raises:
        Unavailable: one of them is missing.
    """
    java = shutil.which("java")
    if java is None:
        raise Unavailable("no java on the PATH (Debian: default-jre-headless)")
    home = os.environ.get("ZOOKEEPER_HOME")
    if home is not None:
        if not any(Path(home, "lib").glob("zookeeper-*.jar")):
            raise Unavailable(f"no lib/zookeeper-*.jar in ZOOKEEPER_HOME={home}")
        return ZooKeeperInstallation(java, f"{home}/lib/*")
    jar = _DEBIAN_JARS / "zookeeper.jar"
    if not jar.exists():
        raise Unavailable(f"no {jar} (Debian: libzookeeper-java; or set ZOOKEEPER_HOME)")
    return ZooKeeperInstallation(java, str(jar))


class ZooKeeperCluster(Cluster):
    """fsync, ticks and limits as in the package's zoo.cfg; the heap as large as its default."""

    name = "ZooKeeper"

    def __init__(self, folder: Path, installation: ZooKeeperInstallation) -> None:
        self._installation = installation
        self._nodes = NodeProcesses(folder)
        ports = iter(free_ports(3 * len(NODES)))
        self._client_ports = {node: next(ports) for node in NODES}
        self._servers = "".join(
            f"server.{node}=127.0.0.1:{next(ports)}:{next(ports)}\n" for node in NODES
        )

    @property
    def pids(self) -> Mapping[int, int]:
        return self._nodes.pids

    async def start(self) -> None:
        (self._nodes.folder / "log4j.properties").write_text(_LOGGING)
        for node in NODES:
            self._write_configuration(node)
            self.start_node(node)
        self._nodes.wait_until("ZooKeeper serves", lambda: all(map(self.is_caught_up, NODES)))

    async def stop(self) -> None:
        self._nodes.stop()

    def start_node(self, node: int) -> None:
        java, class_path = self._installation
        folder = self._nodes.folder
        command = [java, "-Xmx1000m", f"-Djute.maxbuffer={MAX_REQUEST_BYTES}"]
        command += ["-cp", f"{folder}:{class_path}", _MAIN, str(self._configuration(node))]
        self._nodes.start(node, command)

    def kill(self, node: int) -> None:
        self._nodes.kill(node)

    def leader(self) -> int:
        for node in self._nodes.running:
            if "Mode: leader" in self._ask(node, "srvr"):
                return node
        raise RuntimeError(f"ZooKeeper has no leader:\n{self._nodes.logs()}")

    def is_caught_up(self, node: int) -> bool:
        """A server serves once it has taken the leader's state."""
        return "Mode: " in self._ask(node, "srvr")

    async def connect(self) -> Client:
        return KazooWriter(self._client_ports[self.leader()])

    async def connect_bare(self) -> Client:
        return BareWriter(await self.connect_raw())

    async def connect_raw(self) -> ZooKeeperClient:
        """A session with the server that leads now."""
        return await ZooKeeperClient.connect(self._client_ports[self.leader()])

    async def create_keys(self) -> None:
        await self._create("/bench", [keys()])

    async def create_leaves(self, count: int) -> None:
        await self._create("/leaf", leaves(count, version=0))

    async def _create(self, parent: str, batches: Iterable[list[tuple[str, str]]]) -> None:
        client = await self.connect_raw()
        await client.create(parent, "")
        for batch in batches:
            await client.create_all(batch)
        await client.close()

    async def write_through(self) -> None:
        tries = [asyncio.create_task(self._write_to(node)) for node in self._nodes.running]
        done, late = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        for each in late:
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for each in done:
            each.result()

    async def _write_to(self, node: int) -> None:
        deadline = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ZooKeeperError):
                client = await ZooKeeperClient.connect(self._client_ports[node])
                try:
                    await client.set_data(*keys()[0])
                finally:
                    client.abort()
                return
            await asyncio.sleep(_TRY_EVERY_S)
        raise TimeoutError(f"no write to ZooKeeper within {_GIVE_UP_S:g} s")

    def _write_configuration(self, node: int) -> None:
        data = self._nodes.folder / f"data-{node}"
        data.mkdir()
        (data / "myid").write_text(f"{node}\n")
        self._configuration(node).write_text(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\n"
            f"dataDir={data}\nclientPort={self._client_ports[node]}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=srvr\n{self._servers}"
        )

    def _configuration(self, node: int) -> Path:
        return self._nodes.folder / f"node-{node}.cfg"

    def _ask(self, node: int, word: str) -> str:
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._client_ports[node]), 2) as connection,
        ):
            connection.sendall(word.encode())
            while piece := connection.recv(4096):
                answer += piece
        return answer.decode()
