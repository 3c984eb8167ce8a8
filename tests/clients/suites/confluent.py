"""confluent-kafka-python's integration tests, with the installed client.

The suite takes the addresses of a cluster that runs. ``confluent_plugin`` stands for the package
that would start one. What its tests import besides is to be on PYTHONPATH: httpx, attrs,
cachetools, authlib, certifi, async-timeout, pytest-asyncio.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case
from tests.clients.suites.pytest_suite import on_clusters, run_pytest
from tests.clients.suites.selection import Selection

TESTS: Final = tuple(
    f"tests/integration/{part}"
    for part in ("admin", "consumer", "producer", "schema_registry", "serialization")
)
"""Not those of clusters that the suite configures itself, and of share groups."""

CONFIG: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "registry.listener": "http://127.0.0.1:0",
}
_BROKERS: Final = (3,)
_TEST_TIMEOUT_S: Final = 120


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the tests of the checkout ``source`` against three brokers."""
    return on_clusters(_BROKERS, CONFIG, lambda at: _run(source, at, selection.only))


def _run(source: Path, cluster: RunningCluster, only: str) -> list[Case]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(source / "tests", folder / "tests")
        shutil.copy(Path(__file__).with_name("confluent_plugin.py"), folder)
        words = ["-p", "confluent_plugin", "-o", "asyncio_mode=auto", "-k", only, *TESTS]
        return run_pytest(folder, words, _addresses(cluster), _TEST_TIMEOUT_S)


def _addresses(cluster: RunningCluster) -> dict[str, str]:
    """Return where the suite finds the cluster, which also stands for one of an older release."""
    registry = cluster.registry_url(cluster.broker_ids[-1])
    return {
        "BROKERS": cluster.bootstrap,
        "SR_URL": registry,
        "BROKERS_7_0_1": cluster.bootstrap,
        "SR_URL_7_0_1": registry,
    }
