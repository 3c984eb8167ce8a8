"""A running cluster of real processes in a temporary folder, and the operations that tests need."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.client.results import ClusterStatus
from quorate.cluster.certificates import admin_security
from quorate.cluster.client_options import client_options_of
from quorate.cluster.fork_server.fork_servers import spawn_forked
from quorate.cluster.layout import FIRST_BROKER_ID, Node, NodeKind
from quorate.cluster.local import START_TIMEOUT_MS, LocalCluster
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.processes import last_lines, send, spawn
from quorate.cluster.settings import check_settings
from quorate.common.tls.identity import Security

POLL_INTERVAL_S: Final = 0.02
ADMIN_TIMEOUT_MS: Final = 15_000
ASK_TIMEOUT_MS: Final = 2_000
NOT_REGISTERED: Final = -1


class RunningCluster:
    """Real voters and brokers; ids count from 1. ``running_cluster`` makes it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        """Return ``bootstrap.servers`` for any Kafka client, as host:port,host:port."""
        return self._cluster.bootstrap

    @property
    def folder(self) -> Path:
        """Return the folder with configuration, data, logs and cluster.json."""
        return self._cluster.folder

    @property
    def broker_ids(self) -> list[int]:
        return [node.id for node in self._cluster.brokers]

    @property
    def voter_ids(self) -> list[int]:
        return [node.id for node in self._cluster.voters]

    def broker_address(self, broker_id: int) -> str:
        """Return the Kafka address of one broker, as host:port."""
        return self._cluster.node("broker", broker_id).kafka_address

    def console_url(self, broker_id: int) -> str:
        """Return the URL of the console of one broker; empty if it serves none."""
        return self._cluster.node("broker", broker_id).console_url

    def broker_grpc_address(self, broker_id: int) -> str:
        """Return the gRPC address of one broker, as host:port."""
        return self._cluster.node("broker", broker_id).grpc_address

    def registry_url(self, broker_id: int) -> str:
        """Return the URL at which a broker serves the schema registry; empty if it does not.

        Start the cluster with ``registry_listener="http://127.0.0.1:0"``.
        """
        return self._cluster.node("broker", broker_id).registry_url

    def voter_grpc_address(self, voter_id: int) -> str:
        """Return the gRPC address of one voter, as host:port."""
        return self._cluster.node("quorum", voter_id).grpc_address

    def broker_pid(self, broker_id: int) -> int | None:
        """Return the process id of a broker, or None if it does not run."""
        return self._cluster.pid(self._cluster.node("broker", broker_id))

    def voter_pid(self, voter_id: int) -> int | None:
        """Return the process id of a voter, or None if it does not run."""
        return self._cluster.pid(self._cluster.node("quorum", voter_id))

    def quorum_security(self) -> Security | None:
        """Return an administrator's certificates for a ``QuorumClient``, or None for plain text."""
        return admin_security(self.folder)

    def admin(self) -> AdminClient:
        """Return an admin client; the caller closes it."""
        live = [node.grpc_address for node in self._cluster.brokers if self._cluster.pid(node)]
        return AdminClient(
            grpc_addresses=live or [node.grpc_address for node in self._cluster.brokers],
            timeout_ms=ADMIN_TIMEOUT_MS,
            client_id="quorate-testing",
            options=client_options_of(self.folder),
        )

    def status(self) -> ClusterStatus:
        """Return the cluster as the first live broker knows it."""
        with self.admin() as admin:
            return admin.cluster_status()

    def controller_id(self) -> int:
        """Return the broker id of the controller, or -1 if there is none."""
        return self.status().controller_id

    def quorum_leader(self) -> int:
        """Return the id of the voter that leads, or 0 if it is unknown."""
        return self.status().quorum_leader

    def kill_broker(self, broker_id: int) -> None:
        """Kill a broker by kill -9."""
        self._cluster.kill(self._cluster.node("broker", broker_id))

    def kill_voter(self, voter_id: int) -> None:
        """Kill a voter by kill -9."""
        self._cluster.kill(self._cluster.node("quorum", voter_id))

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker by SIGTERM, which is a controlled shutdown; wait until its process is
        gone."""
        self._cluster.stop_node(self._cluster.node("broker", broker_id))

    def stop_voter(self, voter_id: int) -> None:
        """Stop a voter by SIGTERM, so that it hands over its leadership; wait until its process is
        gone."""
        self._cluster.stop_node(self._cluster.node("quorum", voter_id))

    def restart_broker(self, broker_id: int, *, wait: bool = True) -> None:
        """Start a broker again, after killing it if it runs; wait until it has registered.

        An earlier registration, which the cluster may still know, is not mistaken for the new one.
        """
        before = self._epoch(broker_id) if wait else NOT_REGISTERED
        node = self._restart("broker", broker_id)
        if wait:
            with self._client([node.grpc_address]) as new:
                self.wait_until(
                    lambda: _epoch_in(new.cluster_status(), broker_id) > before,
                    f"{node} to register",
                )

    def restart_voter(self, voter_id: int) -> None:
        """Start a voter again, after killing it if it runs; do not wait for it to catch up."""
        self._restart("quorum", voter_id)

    def pause_broker(self, broker_id: int) -> None:
        """Stop a broker by SIGSTOP: it is alive, but silent."""
        self._signal("broker", broker_id, signal.SIGSTOP)

    def resume_broker(self, broker_id: int) -> None:
        """Continue a paused broker by SIGCONT."""
        self._signal("broker", broker_id, signal.SIGCONT)

    def wait_until(
        self, condition: Callable[[], bool], what: str, *, timeout_ms: int = START_TIMEOUT_MS
    ) -> float:
        """Wait until the condition holds, and return the seconds it took. Errors of the client
        count as no.

        Raises:
            LocalClusterError: the condition did not hold in time.
        """
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) * 1000 < timeout_ms:
            try:
                if condition():
                    return elapsed
            except QuorateError:
                pass
            time.sleep(POLL_INTERVAL_S)
        raise LocalClusterError(f"waited {timeout_ms} ms for {what}, in vain")

    def broker_log(self, broker_id: int, lines: int = 50) -> list[str]:
        """Return the last lines of a broker's log."""
        return last_lines(self._cluster.node("broker", broker_id).log_path, lines)

    def voter_log(self, voter_id: int, lines: int = 50) -> list[str]:
        """Return the last lines of a voter's log."""
        return last_lines(self._cluster.node("quorum", voter_id).log_path, lines)

    def _epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration as another broker knows it, if one answers at
        once."""
        live = [
            node.grpc_address
            for node in self._cluster.brokers
            if node.id != broker_id and self._cluster.pid(node) is not None
        ]
        if not live:
            return NOT_REGISTERED
        try:
            with self._client(live) as admin:
                return _epoch_in(admin.cluster_status(), broker_id)
        except QuorateError:
            return NOT_REGISTERED

    def _client(self, addresses: Sequence[str]) -> AdminClient:
        return AdminClient(
            grpc_addresses=addresses,
            timeout_ms=ASK_TIMEOUT_MS,
            options=client_options_of(self.folder),
        )

    def _restart(self, kind: NodeKind, node_id: int) -> Node:
        node = self._cluster.node(kind, node_id)
        if self._cluster.pid(node) is not None:
            self._cluster.kill(node)
        self._cluster.start_node(node)
        return node

    def _signal(self, kind: NodeKind, node_id: int, number: signal.Signals) -> None:
        node = self._cluster.node(kind, node_id)
        pid = self._cluster.pid(node)
        if pid is None:
            raise LocalClusterError(f"{node} is not running")
        send(pid, node.config_path, number)


def _epoch_in(status: ClusterStatus, broker_id: int) -> int:
    broker = status.broker(broker_id)
    return NOT_REGISTERED if broker is None else broker.epoch


@contextmanager
def running_cluster(
    brokers: int = 1,
    voters: int = 1,
    *,
    folder: Path | None = None,
    timeout_ms: int = START_TIMEOUT_MS,
    progress: Callable[[str], None] = lambda message: None,
    config: Mapping[str, object] | None = None,
    forked: bool = True,
    brokers_per_host: int | None = None,
    first_broker_id: int = FIRST_BROKER_ID,
    has_console: bool = False,
    **more_config: object,
) -> Iterator[RunningCluster]:
    """Run a cluster on free ports, complete when it is given out, and removed without a trace
    afterwards.

    ``folder`` is where its files go and stay; by default a temporary folder, removed at the end.
    Configuration keys are given in ``config``, or as keywords with ``_`` for ``.``:
    ``running_cluster(brokers=3, log_flush="os")``. The processes end when the caller's process
    ends, however it ends.

    The processes are forked from one that has loaded their code, where the system allows it. With
    ``forked=False`` each is started as in production: a profiler that begins with the interpreter
    needs that, and whoever measures their memory or their start.

    With ``brokers_per_host``, the first N brokers are in one rack, the next N in another, and so
    on, as if each rack was a host. Brokers are numbered from ``first_broker_id`` on. With
    ``has_console``, they serve the console.

    Raises:
        ConfigError: a key is unknown or a value wrong.
        LocalClusterError: the cluster did not start; says which process failed, and shows its log.
    """
    given = {**(config or {}), **more_config}
    settings = check_settings({key.replace("_", "."): value for key, value in given.items()})
    temporary = None if folder else Path(tempfile.mkdtemp(prefix="quorate-"))
    cluster = None
    try:
        cluster = LocalCluster.create(
            folder or temporary or Path(),
            voters=voters,
            brokers=brokers,
            port=0,
            settings=settings,
            progress=progress,
            attached=True,
            spawner=spawn_forked if forked else spawn,
            brokers_per_host=brokers_per_host,
            first_broker_id=first_broker_id,
            has_console=has_console,
        )
        cluster.start(timeout_ms=timeout_ms)
        yield RunningCluster(cluster)
    finally:
        if cluster is not None:
            cluster.stop(graceful=False)
        if temporary is not None:
            shutil.rmtree(temporary)
