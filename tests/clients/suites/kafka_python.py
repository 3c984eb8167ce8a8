"""kafka-python's integration tests, with the client of the same checkout.

They are written for a broker that they start themselves: one, with the id 0. So they run twice,
against three brokers and against one; what fails with three is known to ask for one.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.selection import Selection

TESTS: Final = tuple(
    f"test/integration/test_{part}_integration.py" for part in ("admin", "consumer", "producer")
)
"""Not those of TLS and SASL: they ask for a broker that they configured themselves."""

_BROKERS: Final = (3, 1)

KAFKA_VERSION: Final = "4.2.0"
"""The version that the client infers from the APIs that are served, and the tests compare with."""

CONFIG: Final[Mapping[str, object]] = {
    "num.partitions": 4,
    "offsets.topic.num.partitions": 2,
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
"""As in the suite's own template of a broker's configuration."""

_TEST_TIMEOUT_S: Final = 120
"""One test waits for a timeout of 60 s."""


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the tests of the checkout ``source`` against three brokers and against one; takes some
    minutes."""
    for brokers in _BROKERS:
        with suite_cluster(brokers, CONFIG) as cluster:
            yield from on_brokers(brokers, run(source, cluster.bootstrap, selection.only))


def on_brokers(brokers: int, cases: Iterable[Case]) -> Iterator[Case]:
    """Name the tests after the cluster that they ran against."""
    for case in cases:
        yield replace(case, name=f"{case.name}@{brokers}")


def run(source: Path, bootstrap: str, only: str = "") -> list[Case]:
    """Run the suite of the checkout ``source``."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment = dict(os.environ)
        environment |= {
            "KAFKA_URI": f"kafka://{bootstrap.partition(',')[0]}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": folder,
            "PYTHONPATH": os.pathsep.join(import_path(source)),
        }
        options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore"]
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *options, *TESTS),
                *("--show-capture=no", f"--timeout={_TEST_TIMEOUT_S}", "--timeout-method=signal"),
                *(f"--junitxml={report}", "-k", only),
            ],
            cwd=source,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return list(cases_of(report.read_text()))


def import_path(source: Path) -> Iterator[str]:
    """The checkout first; what else was on the path may hold the codecs' libraries."""
    yield str(source)
    if given := os.environ.get("PYTHONPATH"):
        yield given


def cases_of(report: str) -> Iterator[Case]:
    """What pytest wrote as JUnit's XML."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = case.get("name", "")
        seconds = float(case.get("time", "0"))
        failure = case.find("failure")
        if failure is None:
            failure = case.find("error")
        skipped = case.find("skipped")
        if failure is not None:
            yield Case(name, "failed", _first_line(failure.get("message", "")), seconds)
        elif skipped is not None:
            yield Case(name, "skipped", _first_line(skipped.get("message", "")), seconds)
        else:
            yield Case(name, "passed", seconds=seconds)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
