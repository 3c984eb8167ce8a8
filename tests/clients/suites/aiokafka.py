"""aiokafka's tests against a broker, with the installed client (the checkout is of its version).

The suite starts one broker in Docker; ``aiokafka_plugin`` gives it ours instead. So it runs twice,
against three brokers and against one. What asks for its broker's own TLS and SASL is left out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.kafka_python import cases_of, import_path, on_brokers
from tests.clients.suites.selection import Selection

TESTS: Final = tuple(
    f"tests/test_{part}.py"
    for part in (
        *("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer"),
        *("sender", "transactional_consumer", "transactional_producer"),
    )
)
"""All that ask a broker, but for test_sasl: that is about mechanisms of the suite's own broker."""

CONFIG: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": True,
    "num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
"""As in the suite's image."""

_BROKERS: Final = (3, 1)

_IMAGE: Final = "aiolibs/kafka:2.13_2.8.1"
"""The newest one that the suite knows; nothing is pulled."""

_TEST_TIMEOUT_S: Final = 120


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the tests of the checkout ``source`` against three brokers and against one; takes some
    minutes."""
    for brokers in _BROKERS:
        with suite_cluster(brokers, CONFIG) as cluster:
            yield from on_brokers(brokers, run(source, cluster.bootstrap, selection.only))


def run(source: Path, bootstrap: str, only: str = "") -> list[Case]:
    """Run the tests of the checkout ``source``."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(source / "tests", folder / "tests")
        shutil.copy(Path(__file__).with_name("aiokafka_plugin.py"), folder)
        report = folder / "report.xml"
        options = ["-q", "-W", "ignore", "-m", "not ssl", "--show-capture=no"]
        without = ["no:randomly", "no:quorate", "no:cacheprovider"]
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *options, "-p", "aiokafka_plugin"),
                *(word for name in without for word in ("-p", name)),
                *("--docker-image", _IMAGE, f"--timeout={_TEST_TIMEOUT_S}"),
                *(f"--junitxml={report}", "-k", only, *TESTS),
            ],
            cwd=folder,
            env={
                **os.environ,
                "SUITE_BOOTSTRAP": bootstrap.partition(",")[0],
                "PYTHONPATH": os.pathsep.join(import_path(folder)),
            },
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return list(cases_of(report.read_text()))
