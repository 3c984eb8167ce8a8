"""Suites that pytest runs, in a process of its own with the client of the same checkout."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import suite_cluster

_WITHOUT: Final = ("randomly", "quorate", "cacheprovider", "xdist")
"""Plugins of ours that are installed here and that no suite expects."""


def run_pytest(
    folder: Path, words: Sequence[str], environment: Mapping[str, str], timeout_s: int
) -> list[Case]:
    """Run pytest in ``folder``, whose packages come first, and return what it reports.

    ``words`` are the suite's options and files. A test is ended after ``timeout_s``.
    """
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.xml"
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--show-capture=no"),
                *(word for name in _WITHOUT for word in ("-p", f"no:{name}")),
                *(f"--timeout={timeout_s}", "--timeout-method=signal", f"--junitxml={report}"),
                *words,
            ],
            cwd=folder,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join(_import_path(folder)),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"pytest ran nothing:\n{ended.stdout}")
        return list(cases_of(report.read_text()))


def on_clusters(
    counts: Iterable[int], config: Mapping[str, object], run: Callable[[RunningCluster], list[Case]]
) -> Iterator[Case]:
    """Run a suite once for each number of brokers, which ends the tests' names: ``test_x@3``.

    ``run`` takes the cluster.
    """
    for count in counts:
        with suite_cluster(count, config) as cluster:
            for case in run(cluster):
                yield replace(case, name=f"{case.name}@{count}")


def _import_path(source: Path) -> Iterator[str]:
    """Return the checkout first; what else is on the path may hold libraries that tests import."""
    yield str(source)
    if given := os.environ.get("PYTHONPATH"):
        yield given


def cases_of(report: str) -> Iterator[Case]:
    """Read what pytest wrote as JUnit's XML."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        yield case_of(case, case.get("name", ""))


def case_of(element: ElementTree.Element, name: str, *, text_of_failure: bool = False) -> Case:
    """Read one test. ``text_of_failure``: the reason is the text of a failure, where there is no
    message of its own."""
    seconds = float(element.get("time", "0"))
    failure = element.find("failure")
    if failure is None:
        failure = element.find("error")
    skipped = element.find("skipped")
    if failure is not None:
        said = (failure.text or "") if text_of_failure else failure.get("message", "")
        return Case(name, "failed", _first_line(said), seconds)
    if skipped is not None:
        return Case(name, "skipped", _first_line(skipped.get("message", "")), seconds)
    return Case(name, "passed", seconds=seconds)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
