"""A source of Kafka Connect in distributed mode, exactly once: each line of a file is a record."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorate.client.results import NewTopic
from quorate.cluster.cluster_ports import PortReservation
from quorate.testing import RunningCluster
from tests.clients.applications.committed import committed_records
from tests.clients.applications.kills import Say, kill_in_turn
from tests.clients.applications.loads import in_background
from tests.clients.applications.workers import running_workers
from tests.support.waiting import wait_until

WORKERS: Final = 2

_PAUSE_S: Final = 0.004
_COMPLETE_WITHIN_S: Final = 180.0
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
_SETTINGS: Final = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": 1_000,
    "session.timeout.ms": 10_000,
    "key.converter": _STRINGS,
    "value.converter": _STRINGS,
    "offset.flush.interval.ms": 1_000,
    **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
    **{f"{kind}.storage.replication.factor": 3 for kind in ("config", "offset", "status")},
    **{f"{kind}.storage.partitions": 1 for kind in ("offset", "status")},
}


def run(cluster: RunningCluster, folder: Path, kills: int, seed: int, say: Say) -> str:
    """Copy a growing file while brokers and workers are killed; return what was found.

    Raises:
        AssertionError: a line is missing, or there twice.
    """
    with cluster.admin() as admin:
        topic = NewTopic(name="lines", num_partitions=1, replication_factor=3)
        admin.create_topics([topic])[0].raise_for_error()
    with PortReservation() as reserved:
        ports = [reserved.claim_any() for _ in range(WORKERS)]
    for number, port in enumerate(ports):
        _write_settings(folder / f"worker-{number}.properties", cluster.bootstrap, port)

    def arguments_of(number: int) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return [main, str(folder / f"worker-{number}.properties")]

    source = folder / "lines.txt"
    source.touch()
    with running_workers(WORKERS, folder, arguments_of) as workers:
        wait_until(lambda: _configure(ports[0], source), "the connector", timeout_s=120)
        with _lines(source) as written:
            brokers, killed = kill_in_turn(cluster, workers, kills, seed, say)
        say(f"{len(written)} lines written; waiting for their records")
        found: list[str] = []
        for _, value in committed_records(
            cluster.bootstrap, "lines", 1, lambda: len(found) >= len(written), _COMPLETE_WITHIN_S
        ):
            found.append(value.decode())
    assert found == written, (
        f"{len(written)} lines, {len(found)} records, {len(set(written) - set(found))} missing, "
        f"{len(found) - len(set(found))} twice"
    )
    return (
        f"{brokers} kills of brokers, {killed} of workers: {len(written)} lines, "
        "each once and in order"
    )


def _write_settings(path: Path, bootstrap: str, port: int) -> None:
    settings = {
        **_SETTINGS,
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _configure(port: int, source: Path) -> bool:
    """Create the connector; return False as long as the worker does not answer so."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "exactly.once.support": "required",
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/lines/config",
        data=json.dumps(config).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status in (200, 201)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@contextmanager
def _lines(source: Path) -> Iterator[list[str]]:
    """Append lines until the end; yield them, complete afterwards."""
    written: list[str] = []

    def write(is_over: threading.Event) -> None:
        with source.open("a", buffering=1) as file:
            while not is_over.is_set():
                line = f"line {len(written)}"
                file.write(line + "\n")
                written.append(line)
                time.sleep(_PAUSE_S)

    with in_background(write, "lines"):
        yield written
