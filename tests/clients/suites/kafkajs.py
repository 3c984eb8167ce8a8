"""kafkajs' tests that ask a broker: a checkout in which ``npm install`` was run."""

import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.pytest_suite import case_of
from tests.clients.suites.selection import Selection

CONFIG: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "true",
}
WRITTEN_PORTS: Final = (9092, 9095, 9098)
"""The ports of the three brokers that the tests have written down."""

_KAFKA_VERSION: Final = "2.4"
"""The newest that the tests know: some are for brokers from a version on."""

_REDIRECTION: Final = Path(__file__).with_name("kafkajs_ports.js")
_ASKS_A_BROKER: Final = "testHelpers"
_LIMIT_S: Final = 600


def cases(source: Path, selection: Selection) -> Iterator[Case]:
    """Run the files that are selected against three brokers, one file after the other.

    A test is named by its file and its title: ``admin/createTopics.spec.js: Admin ...``.
    """
    chosen, left = selection.split_files(files_of(source))
    yield from left
    with suite_cluster(3, CONFIG) as cluster:
        for file in chosen:
            found = _run(source, file, cluster)
            yield from (case for case in found if selection.includes(case.name))


def files_of(source: Path) -> list[str]:
    """Return the files with tests that ask a broker, named from ``src`` on."""
    root = source / "src"
    found = [path for path in root.rglob("*spec.js") if _ASKS_A_BROKER in path.read_text()]
    return sorted(str(path.relative_to(root)) for path in found)


def _run(source: Path, file: str, cluster: RunningCluster) -> Sequence[Case]:
    addresses = [cluster.broker_address(id) for id in cluster.broker_ids]
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.xml"
        environment = {
            **os.environ,
            "NODE_OPTIONS": f"--require {_REDIRECTION}",
            "QUORATE_PORTS": json.dumps(dict(zip(WRITTEN_PORTS, ports, strict=True))),
            "KAFKA_VERSION": _KAFKA_VERSION,
            "JEST_JUNIT_OUTPUT_DIR": made,
            "JEST_JUNIT_OUTPUT_NAME": report.name,
            "JEST_JUNIT_TITLE": "{title}",
            "JEST_JUNIT_CLASSNAME": "{classname}",
        }
        jest = ["node", "node_modules/jest/bin/jest.js", "--ci", "--runInBand", "--forceExit"]
        command = [*jest, "--no-watchman", "--testTimeout=60000", "--runTestsByPath", f"src/{file}"]
        try:
            subprocess.run(
                command,
                cwd=source,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [Case(f"{file}: all", "failed", f"took longer than {_LIMIT_S} s")]
        if not report.exists():
            return [Case(f"{file}: all", "failed", "jest ended without a report")]
        return cases_of(file, report.read_text())


def cases_of(file: str, report: str) -> list[Case]:
    """Read what jest-junit wrote about a file; tests of the same title are numbered."""
    found: list[Case] = []
    seen: dict[str, int] = {}
    for element in ElementTree.fromstring(report).iter("testcase"):
        group, title = element.get("classname", "").strip(), element.get("name", "").strip()
        name = f"{file}: {group} {title}"
        seen[name] = seen.get(name, 0) + 1
        numbered = name if seen[name] == 1 else f"{name} ({seen[name]})"
        found.append(case_of(element, numbered, text_of_failure=True))
    return found
