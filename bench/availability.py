"""Measures how long partitions take no acks=all records when something fails, by kind of fault.

Three brokers, three voters and a client on a host of their own each, as network namespaces, set up
as docs/DEPLOY.md says: replication factor 3, min.insync.replicas 2, TLS between the nodes. The
clients are confluent-kafka. They produce to every partition all the time, while one broker or
voter is killed, stopped, or cut off, while links are slow or lossy, and while a disk is full or
fails. "stall" is the longest time in which any one partition acknowledged nothing to two clients,
of which one asks again after a second, "led" that of the partitions which the victim led,
"followed" that of the others, "median" the median over the partitions. "default client" is the
other client alone, which waits as long as librdkafka does by default: 60 s for a broker that does
not answer. Needs the right to make network namespaces. ``--docs`` writes the figures into the
table of docs/AVAILABILITY.md.
"""

import contextlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bench import _availability_console as console
from bench._availability_table import rewritten
from bench._faults import CONTROLLER, FAILING_DISK, FAULTS, QUICK, QUORUM_LEADER, Fault
from bench._support import Bench
from tests.support.deployment import Deployment
from tests.support.network_lab import why_not
from tests.support.six_hosts import six_hosts
from tests.support.three_hosts import CONSOLE, HOSTS

TOPIC: Final = "availability"
PARTITIONS: Final = 6
PRODUCE_EVERY_S: Final = 0.01
OBSERVE_MAX_S: Final = 60.0
ENOUGH: Final = 5
"""Acknowledgements after the fault that show a partition to go on."""
REPAIR_TIMEOUT_S: Final = 120.0
PAGE: Final = Path(__file__).parents[1] / "docs/AVAILABILITY.md"


class Cluster:
    """The cluster under test, and its producer."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed
        self._bootstrap = deployed.hosts.bootstrap

    def begin(self) -> None:
        """Create the topic and produce to it."""
        self._wait(lambda: len(self.status().get("brokers", ())) == len(HOSTS), "the brokers")
        self._run("topics", "create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
        self.wait_until_whole()
        self.deployed.console.call(
            console.start, self._bootstrap, TOPIC, PARTITIONS, PRODUCE_EVERY_S
        )

    def measure(self, fault: Fault) -> dict[str, float]:
        """The stalls of one fault, in seconds."""
        self.wait_until_whole()
        victim = self._victim(fault)
        leaders = self.leaders()
        log = self.deployed.hosts.log_path("broker", victim)
        said = len(log.read_bytes())
        began_s = self.deployed.console.call(console.now_s)
        fault.begin(self.deployed, victim)
        try:
            self._observe(began_s, fault.observe_s)
            ended_s = self.deployed.console.call(console.now_s)
            shown = log.read_bytes()[said:].decode(errors="replace")
            assert fault.shows in shown, f"{fault.name} did not take effect: {shown}"
        finally:
            fault.end(self.deployed, victim)
        gaps, patient = (
            self.deployed.console.call(console.longest_gaps_s, client, began_s, ended_s)
            for client in ((console.IMPATIENT, console.PATIENT), (console.PATIENT,))
        )
        has_led = {n: one[0] == victim and fault.hits_broker for n, one in leaders.items()}
        led = [gap for number, gap in gaps.items() if has_led[number]]
        followed = [gap for number, gap in gaps.items() if not has_led[number]]
        return {
            "stall s": max(gaps.values()),
            "led s": max(led, default=0.0),
            "followed s": max(followed, default=0.0),
            "median s": statistics.median(gaps.values()),
            "default client s": max(patient.values()),
        }

    def end(self) -> tuple[int, int]:
        """Stop producing; how many records were acknowledged, and how many failed for good."""
        found: tuple[int, int] = self.deployed.console.call(console.stop)
        return found

    def wait_until_whole(self) -> None:
        """Wait until every replica is in sync, and every broker leads what it prefers to lead."""

        def whole() -> bool:
            status = self.status()
            if len(status.get("brokers", ())) != len(HOSTS) or status.get("alerts"):
                return False
            if status["offline_partitions"] or status["under_replicated_partitions"]:
                return False
            with contextlib.suppress(AssertionError):  # Not all of them may lead yet.
                self._run("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
            found = self.leaders()
            led = {leader for leader, _ in found.values()}
            return led == set(HOSTS) and all(size == len(HOSTS) for _, size in found.values())

        self._wait(whole, "every replica in sync")

    def leaders(self) -> dict[int, tuple[int, int]]:
        """Leader and size of the ISR of each partition."""
        found: dict[int, tuple[int, int]] = self.deployed.console.call(
            console.leaders, self._bootstrap, TOPIC
        )
        return found

    def status(self) -> Mapping[str, list[object]]:
        """Return the status that an administrator sees, or nothing while nobody answers."""
        try:
            found: Mapping[str, list[object]] = json.loads(self._run("status", "--json"))
        except AssertionError:
            return {}
        return found

    def _victim(self, fault: Fault) -> int:
        if fault.victim == QUORUM_LEADER:
            return self.deployed.leader()
        controller = int(str(self.status()["controller_id"]))
        if fault.victim == CONTROLLER:
            return controller
        return next(host for host in HOSTS if host != controller)

    def _observe(self, began_s: float, least_s: float) -> None:
        """Wait until all partitions go on, and for ``least_s`` at least, because a fault may show
        late."""
        deadline_s = time.monotonic() + OBSERVE_MAX_S
        time.sleep(least_s)
        while time.monotonic() < deadline_s:
            now_s = self.deployed.console.call(console.now_s)
            counts = self.deployed.console.call(console.acknowledged, now_s - 2.0)
            if len(counts) == PARTITIONS and min(counts.values()) >= ENOUGH:
                return
            time.sleep(0.5)

    def _run(self, *arguments: str) -> str:
        command = ["quorate", *arguments, "--bootstrap-server", self._bootstrap]
        return self.deployed.hosts.run(CONSOLE, command)

    def _wait(self, holds: object, what: str) -> None:
        assert callable(holds)
        deadline_s = time.monotonic() + REPAIR_TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what}\n{self.deployed.hosts.logs()}")
            time.sleep(0.5)


def main() -> None:
    """Measure each fault several times, and print the medians."""
    bench = Bench.from_command_line(
        "Availability", __doc__ or "", selectable=True, writes_page=True
    )
    if reason := why_not():
        print(f"not measured: {reason}", file=sys.stderr)
        return
    try:
        with tempfile.TemporaryDirectory() as folder, six_hosts(Path(folder)) as deployed:
            _measure(bench, Cluster(deployed))
    finally:
        bench.finish()
        if bench.writes_page:
            _write_table(bench)


def _measure(bench: Bench, cluster: Cluster) -> None:
    cluster.begin()
    for fault in _chosen(bench):
        if fault.name == FAILING_DISK and not cluster.deployed.disks.can_fail:
            print(f"not measured: {fault.name}, there is no compiler", file=sys.stderr)
            continue
        case = {"fault": fault.name, "victim": fault.victim}
        bench.row(case, bench.repeat(partial(cluster.measure, fault)))
    acknowledged, failed = cluster.end()
    bench.figures.update({"acknowledged": acknowledged, "failed": failed})


def _chosen(bench: Bench) -> list[Fault]:
    """The faults that the flags ask for: a pattern may name any, also in a quick run."""
    if bench.pattern is not None:
        return [each for each in FAULTS if re.search(bench.pattern, " ".join(_key(each)))]
    return [each for each in FAULTS if not bench.quick or each.name in QUICK]


def _key(fault: Fault) -> tuple[str, str]:
    return fault.name, fault.victim


def _write_table(bench: Bench) -> None:
    measured = {(str(row["fault"]), str(row["victim"])): row for row in bench.rows}
    text = PAGE.read_text(encoding="utf-8")
    order = [_key(fault) for fault in FAULTS]
    PAGE.write_text(rewritten(text, order, measured, bench.repetitions), encoding="utf-8")


if __name__ == "__main__":
    main()
