"""Prometheus itself, which scrapes a running cluster and evaluates expressions."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from quorate.cluster.cluster_ports import HOST, PortReservation
from quorate.testing import RunningCluster
from tests.support.waiting import wait_until

PROMETHEUS: Final = shutil.which("prometheus")
PROMTOOL: Final = shutil.which("promtool")
WHY_NOT: Final = "no prometheus here: Debian's package of that name has it, and promtool"
_CONFIG: Final = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - job_name: quorate
    file_sd_configs: [{files: [TARGETS]}]
"""


class Prometheus:
    """A running server."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/api/v1"

    def query(self, expression: str) -> Sequence[Mapping[str, Any]]:
        """Return the samples that the expression has now.

        Raises:
            urllib.error.HTTPError: it cannot be evaluated.
        """
        words = urllib.parse.urlencode({"query": expression})
        result: Sequence[Mapping[str, Any]] = self._get(f"query?{words}")["result"]
        return result

    def rules(self) -> dict[str, str]:
        """Return the health of each alert rule: "ok" once it was evaluated without an error."""
        groups = self._get("rules?type=alert")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def _get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(cluster: RunningCluster, rules: Path, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that knows all nodes of the cluster, and has scraped each of them twice."""
    assert PROMETHEUS is not None
    with PortReservation() as ports:
        port = ports.claim_any()
    config = _CONFIG.replace("RULES", json.dumps(str(rules)))
    targets = cluster.folder / "prometheus.json"
    config_path = folder / "prometheus.yml"
    config_path.write_text(config.replace("TARGETS", json.dumps(str(targets))))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={config_path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={HOST}:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Prometheus(f"{HOST}:{port}")
        nodes = len(json.loads(targets.read_text()))
        wait_until(lambda: _has_scraped(server, nodes), "two scrapes of every node", timeout_s=60)
        yield server
    finally:
        process.terminate()
        process.wait()


def _has_scraped(server: Prometheus, nodes: int) -> bool:
    try:
        return len(server.query("count_over_time(up[1m]) > 2")) == nodes
    except OSError:
        return False
