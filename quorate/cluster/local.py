"""A local cluster: creates or finds it in a folder, starts it, waits for it, stops it."""

import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from quorate.cluster.certificates import make_certificates
from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.hosts import brokers_per_host_in, shared_hosts_warning
from quorate.cluster.layout import (
    FIRST_BROKER_ID,
    LOCK_NAME,
    Node,
    NodeKind,
    load_nodes,
    plan_cluster,
    refuse_foreign_folder,
    with_settings,
    write_config,
)
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.processes import (
    POLL_INTERVAL_MS,
    ChildProcess,
    Spawner,
    is_ours,
    last_lines,
    send,
    spawn,
    wait_gone,
)
from quorate.cluster.readiness import Readiness
from quorate.cluster.settings import Settings
from quorate.cluster.state import console_of, read_pids, remove_state, write_state
from quorate.common.files.private_files import (
    FILE_MODE,
    describe_narrowed,
    make_private_folder,
    narrow,
)

START_TIMEOUT_MS: Final = 90_000
STOP_TIMEOUT_MS: Final = 20_000
PROGRESS_INTERVAL_MS: Final = 3_000

Progress = Callable[[str], None]
NodeKey = tuple[NodeKind, int]


class LocalCluster:
    """The nodes of one folder and the processes that run them.

    The configuration files are the truth about the nodes, and cluster.json is the truth about the
    processes. This class reads both once, and writes all changes to them.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Node],
        progress: Progress,
        *,
        attached: bool,
        spawner: Spawner = spawn,
    ) -> None:
        """``spawner`` starts the processes, each anew or forked."""
        self._attached = attached
        self.folder = folder
        self.nodes = list(nodes)
        self._progress = progress
        self._spawner = spawner
        self._children: dict[NodeKey, ChildProcess] = {}
        self._pids = read_pids(folder)

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        voters: int,
        brokers: int,
        port: int,
        settings: Settings,
        progress: Progress,
        attached: bool,
        spawner: Spawner = spawn,
        brokers_per_host: int | None = None,
        first_broker_id: int = FIRST_BROKER_ID,
        has_console: bool = False,
    ) -> Self:
        """Create a new cluster in an empty folder; write its configuration and its certificates.

        With ``attached``, the processes stop when this process ends, however it ends.
        With ``brokers_per_host``, racks stand for hosts of so many brokers. Brokers are numbered
        from ``first_broker_id`` on. With ``has_console``, each broker serves the console.

        Raises:
            LocalClusterError: a port is taken, the brokers do not make whole hosts, or the folder
                holds something else.
        """
        folder = folder.resolve()
        refuse_foreign_folder(folder)
        nodes = plan_cluster(
            folder,
            voters=voters,
            brokers=brokers,
            port=port,
            settings=settings,
            cluster_id=secrets.token_urlsafe(16),
            brokers_per_host=brokers_per_host,
            first_broker_id=first_broker_id,
            has_console=has_console,
        )
        if brokers_per_host is not None:
            warning = shared_hosts_warning(brokers, brokers_per_host, settings.broker)
            if warning is not None:
                progress(warning)
        make_certificates(folder, nodes)
        for node in nodes:
            write_config(node)
        return cls(folder, nodes, progress, attached=attached, spawner=spawner)

    @classmethod
    def find(
        cls, folder: Path, progress: Progress, *, attached: bool, spawner: Spawner = spawn
    ) -> "LocalCluster | None":
        """Return the cluster in the folder, running or not, or None if there is none."""
        folder = folder.resolve()
        nodes = load_nodes(folder)
        if not nodes:
            return None
        return cls(folder, nodes, progress, attached=attached, spawner=spawner)

    @property
    def voters(self) -> list[Node]:
        return [node for node in self.nodes if node.kind == "quorum"]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.kind == "broker"]

    @property
    def brokers_per_host(self) -> int | None:
        """Return how many brokers are in one rack, or None if they have no racks."""
        return brokers_per_host_in([node.rack for node in self.brokers])

    @property
    def console_url(self) -> str:
        """Return the URL of the console at the first broker that has one; empty if none has."""
        return console_of(self.brokers)

    @property
    def bootstrap(self) -> str:
        """Return the Kafka addresses of all brokers, as host:port,host:port."""
        return ",".join(node.kafka_address for node in self.brokers)

    def node(self, kind: NodeKind, node_id: int) -> Node:
        """Return the node with that id.

        Raises:
            LocalClusterError: there is no such node; the message names those that exist.
        """
        known = self.voters if kind == "quorum" else self.brokers
        for node in known:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in known)
        raise LocalClusterError(f"{self.folder} has no {kind} {node_id}: there are {ids}")

    def python_of(self, node: Node) -> str:
        """Return the Python that runs the node: the one that runs this."""
        return sys.executable

    def pid(self, node: Node) -> int | None:
        """Return the process id of a node, or None if it does not run."""
        key = (node.kind, node.id)
        child = self._children.get(key)
        if child is not None:
            return child.pid if child.poll() is None else None
        pid = self._pids.get(key)
        return pid if pid is not None and is_ours(pid, node.config_path) else None

    def running(self) -> list[Node]:
        return [node for node in self.nodes if self.pid(node) is not None]

    def exit_code(self, node: Node) -> int | None:
        """Return the exit code of a process that this object started and that has ended."""
        child = self._children.get((node.kind, node.id))
        return child.poll() if child else None

    def change_settings(self, settings: Settings) -> None:
        """Rewrite the configuration files; the change takes effect at the next start."""
        self.nodes = [with_settings(node, settings) for node in self.nodes]
        for node in self.nodes:
            write_config(node)

    def start(self, *, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Start every node that does not run, and wait until the cluster is complete.

        If that fails, the processes that were started here are stopped again.

        Raises:
            LocalClusterError: everything runs already, a port is taken, a process ended (shows the
                end of its log), or the cluster was not complete in time (says what is missing).
        """
        with self._lock():
            stopped = [node for node in self.nodes if self.pid(node) is None]
            if not stopped:
                raise LocalClusterError(
                    f"the cluster in {self.folder} is already running (Kafka at {self.bootstrap}): "
                    f"stop it with `quorate down --data {self.folder}`"
                )
            self._check_ports(stopped)
            narrowed = describe_narrowed(self.folder, narrow(self.folder))
            if narrowed is not None:
                self._progress(narrowed)
            self._progress(_summary("starting", stopped))
            try:
                for node in stopped:
                    self._spawn(node)
                self._write_state()
                self._wait_until_whole(timeout_ms)
            except BaseException:
                self._stop(stopped, graceful=False, timeout_ms=STOP_TIMEOUT_MS)
                raise

    def start_node(self, node: Node) -> None:
        """Start the process of one node; do not wait until it is ready."""
        if self.pid(node) is None:
            self._spawn(node)
            self._write_state()

    def kill(self, node: Node) -> int:
        """Kill a node by kill -9, wait until its process is gone, and return its pid.

        Raises:
            LocalClusterError: the node does not run.
        """
        pid = self.pid(node)
        if pid is None:
            raise LocalClusterError(f"{node} is not running")
        send(pid, node.config_path, signal.SIGKILL)
        wait_gone([(pid, node.config_path)], STOP_TIMEOUT_MS)
        self._reap(node)
        return pid

    def stop_node(self, node: Node, *, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop one node by SIGTERM, and by SIGKILL at the timeout."""
        self._stop([node], graceful=True, timeout_ms=timeout_ms)

    def stop(self, *, graceful: bool = True, timeout_ms: int = STOP_TIMEOUT_MS) -> list[Node]:
        """Stop everything, first the brokers, then the voters; return the nodes that ran.

        With ``graceful``, processes receive SIGTERM, and SIGKILL at the timeout; otherwise SIGKILL
        at once.
        """
        with self._lock():
            return self._stop(self.nodes, graceful=graceful, timeout_ms=timeout_ms)

    def _stop(self, nodes: Sequence[Node], *, graceful: bool, timeout_ms: int) -> list[Node]:
        stopped: list[Node] = []
        for kind in ("broker", "quorum"):
            group = [node for node in nodes if node.kind == kind]
            stopped += self._stop_group(group, graceful=graceful, timeout_ms=timeout_ms)
            for node in group:
                self._reap(node)
        self._write_state()
        return stopped

    def _stop_group(self, nodes: Sequence[Node], *, graceful: bool, timeout_ms: int) -> list[Node]:
        alive = {pid: node for node in nodes if (pid := self.pid(node)) is not None}
        if alive and graceful:
            self._progress(_summary("stopping", list(alive.values())))
        first_signal = signal.SIGTERM if graceful else signal.SIGKILL
        for pid, node in alive.items():
            send(pid, node.config_path, first_signal)
        processes = [(pid, node.config_path) for pid, node in alive.items()]
        for pid, config_path in wait_gone(processes, timeout_ms):
            self._progress(f"{alive[pid]} (pid {pid}) did not stop in {timeout_ms} ms: killing it")
            send(pid, config_path, signal.SIGKILL)
        wait_gone(processes, timeout_ms)
        return list(alive.values())

    def _spawn(self, node: Node) -> None:
        """Start a node that does not run; an earlier process of it may have ended by itself."""
        self._reap(node)
        child = self._spawner(node, self.python_of(node), attached=self._attached)
        self._children[node.kind, node.id] = child
        self._pids[node.kind, node.id] = child.pid

    def _reap(self, node: Node) -> None:
        key = (node.kind, node.id)
        if (child := self._children.pop(key, None)) is not None:
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
        self._pids.pop(key, None)

    def _write_state(self) -> None:
        """Write cluster.json, which lists the nodes that were started and not stopped; remove it if
        none is left."""
        if self._pids:
            write_state(self.folder, self.nodes, self._pids)
        else:
            remove_state(self.folder)

    def _check_ports(self, nodes: Sequence[Node]) -> None:
        with PortReservation() as ports:
            for node in nodes:
                for use, port in node.ports.items():
                    ports.claim(port, f"{use}, {node}", f"change it in {node.config_path}")

    def _wait_until_whole(self, timeout_ms: int) -> None:
        begin = time.monotonic()
        said = begin
        with Readiness(self.brokers) as readiness:
            while (missing := readiness.what_is_missing()) is not None:
                self._refuse_dead_child()
                now = time.monotonic()
                if (now - begin) * 1000 >= timeout_ms:
                    raise LocalClusterError(
                        f"the cluster is not up after {timeout_ms} ms: {missing}; "
                        f"see the logs in {self.folder / 'logs'}"
                    )
                if (now - said) * 1000 >= PROGRESS_INTERVAL_MS:
                    self._progress(f"… {now - begin:.0f} s: {missing}")
                    said = now
                time.sleep(POLL_INTERVAL_MS / 1000)

    def _refuse_dead_child(self) -> None:
        for node in self.nodes:
            code = self.exit_code(node)
            if code is not None and (node.kind, node.id) in self._pids:
                tail = "\n  ".join(last_lines(node.log_path, 15))
                raise LocalClusterError(
                    f"{node} ended with exit code {code} while starting; "
                    f"the end of {node.log_path}:\n  {tail}"
                )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one start or stop of a folder at a time."""
        make_private_folder(self.folder)
        lock = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, FILE_MODE)
        with open(lock, "w", encoding="utf-8") as lock_file:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalClusterError(
                    f"another `quorate up` or `quorate down` is at work in {self.folder}: "
                    f"wait for it to finish"
                ) from None
            yield


def _summary(verb: str, nodes: Sequence[Node]) -> str:
    voters = sum(node.kind == "quorum" for node in nodes)
    brokers = len(nodes) - voters
    parts = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for count, name in ((voters, "voter"), (brokers, "broker"))
        if count
    ]
    return f"{verb} {' and '.join(parts)}"
