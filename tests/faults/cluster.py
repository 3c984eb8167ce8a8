"""Three hosts with a voter and a broker each, in network namespaces, and what may befall them."""

import os
import shutil
import signal
from pathlib import Path
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.results import ClusterStatus
from tests.faults.standing_group import SESSION_TIMEOUT_MS
from tests.faults.switch import SlowLinksLab
from tests.support.network_lab import address_of
from tests.support.three_hosts import CLUSTER_PORTS, HOSTS, ThreeHosts
from tests.support.waiting import wait_until

BROKER, VOTER = "broker", "quorum"
SETTINGS: Final = (
    '"broker.session.timeout.ms" = 4000',
    '"replica.lag.time.max.ms" = 5000',
    f'"group.consumer.session.timeout.ms" = {SESSION_TIMEOUT_MS}',
    f'"group.consumer.min.session.timeout.ms" = {SESSION_TIMEOUT_MS}',
    '"offsets.topic.num.partitions" = 3',
    '"transaction.state.log.num.partitions" = 3',
    '"log.segment.bytes" = 1048576',
    '"log.reserve.bytes" = 1048576',
)
VOTER_SETTINGS: Final = (
    '"raft.election.timeout.min.ms" = 800',
    '"raft.election.timeout.max.ms" = 1600',
)
"""Patient enough for a machine that runs all hosts and all clients at once."""
WHOLE_TIMEOUT_S: Final = 120.0


class FaultCluster:
    """The processes, as events handle them."""

    def __init__(self, hosts: ThreeHosts, lab: SlowLinksLab, folder: Path) -> None:
        self.hosts, self.lab, self._folder = hosts, lab, folder
        self.bootstrap = hosts.bootstrap

    def admin(self) -> AdminClient:
        """Return an admin client; the caller closes it."""
        addresses = [f"{address_of(host)}:{CLUSTER_PORTS['broker']}" for host in HOSTS]
        return AdminClient(grpc_addresses=addresses, timeout_ms=15_000)

    def pid(self, kind: str, host: int) -> int:
        return self.hosts.processes[kind, host].pid

    def runs(self, kind: str, host: int) -> bool:
        process = self.hosts.processes.get((kind, host))
        return process is not None and process.poll() is None

    def start(self, kind: str, host: int) -> None:
        """Start a process that does not run."""
        if not self.runs(kind, host):
            self.hosts.start(kind, host)

    def kill(self, kind: str, host: int) -> None:
        """kill -9."""
        self.hosts.kill(kind, host)

    def stop(self, kind: str, host: int) -> None:
        """Stop by SIGTERM, which for a broker is a controlled shutdown."""
        self.hosts.stop(kind, host)

    def pause(self, kind: str, host: int) -> None:
        os.kill(self.pid(kind, host), signal.SIGSTOP)

    def resume(self, kind: str, host: int) -> None:
        os.kill(self.pid(kind, host), signal.SIGCONT)

    def said(self, kind: str, host: int) -> str:
        return self.hosts.log_path(kind, host).read_text(errors="replace")

    def status(self) -> ClusterStatus:
        with self.admin() as admin:
            return admin.cluster_status()

    def wait_until_whole(self) -> None:
        """Every broker registered, every partition led, every replica in its ISR."""

        def is_whole() -> bool:
            status = self.status()
            everybody = len(status.brokers) == len(HOSTS) and status.controller_id >= 0
            lagging = status.under_replicated_partitions or status.offline_partitions
            return everybody and not lagging

        wait_until(
            is_whole,
            lambda: f"the cluster to be whole\n{self.hosts.logs()}",
            timeout_s=WHOLE_TIMEOUT_S,
        )

    def copied_folders(self, into: Path) -> list[Path]:
        """Copy the brokers' folders at one moment, while all of them stand still."""
        copies = []
        for host in HOSTS:
            self.pause(BROKER, host)
        try:
            for host in HOSTS:
                copies.append(into / str(host))
                shutil.copytree(
                    self.hosts.data_dir(BROKER, host),
                    copies[-1],
                    ignore=shutil.ignore_patterns("reserve"),
                )
        finally:
            for host in HOSTS:
                self.resume(BROKER, host)
        return copies
