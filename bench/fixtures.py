"""Measures the pytest fixtures as the project of a user sees them, in a pytest of its own.

The time to the first test counts from the start of pytest's process until a test has the shared
cluster. What pytest takes alone, with the plugins that are installed here, is a row of its own.

The other rows are whole tests on that cluster, with setup and teardown: one that creates a topic,
that also produces a record, that also reads it from a partition, or as the first member of a group,
with librdkafka's defaults and with the fixture ``quorate_consumer``.
The first test of a kind is not counted: it creates internal topics.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench._fixture_project import ALONE, CONFTEST, TESTS
from bench._support import Bench, percentile

KINDS: Final = {
    "creates a topic": ("test_topic[", "]"),
    "and produces": ("test_produce[", "]"),
    "and reads a partition": ("test_read[", "]"),
    "and reads in a group, classic": ("test_group[", "-classic]"),
    "and reads in a group, consumer": ("test_group[", "-consumer]"),
    "and reads with quorate_consumer, classic": ("test_consumer[", "-classic]"),
    "and reads with quorate_consumer, consumer": ("test_consumer[", "-consumer]"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line("Fixtures", "the pytest fixtures of a user", arguments)
    tests = bench.pick(full=40, quick=8)
    runs = [run(tests) for _ in range(bench.repetitions)]
    alone = _median_ms([run_alone() for _ in range(bench.repetitions)])
    first = _median_ms([first for first, _ in runs])
    bench.row({"what": "pytest alone, to its first test"}, {"ms": alone})
    bench.row({"what": "the first test with a cluster, beyond that"}, {"ms": first - alone})
    for kind, named in KINDS.items():
        samples = [seconds for _, durations in runs for seconds in _of_kind(durations, *named)]
        bench.row(
            {"what": f"a test that {kind}" if kind.startswith("creates") else f"… {kind}"},
            {"ms": _median_ms(samples), "p95 ms": percentile(samples, 0.95) * 1000},
        )
    bench.finish()


def run(tests: int) -> tuple[float, Mapping[str, float]]:
    """Run the project's tests; return the seconds to the first one, and those of each."""
    return _run(TESTS.replace("@ROUNDS@", str(tests)))


def run_alone() -> float:
    """Return the seconds that pytest takes to the first test of a project without Quorate."""
    return _run(ALONE)[0]


def _run(tests: str) -> tuple[float, Mapping[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "conftest.py").write_text(CONFTEST)
        (project / "test_project.py").write_text(tests)
        began = time.monotonic()
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"),
                *("-p", "no:cacheprovider", "--rootdir", folder, folder),
            ],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        figures = json.loads((project / "figures.json").read_text())
    return figures["first_test"] - began, figures["durations"]


def _of_kind(durations: Mapping[str, float], function: str, end: str) -> list[float]:
    """Return the durations of a kind of test without the first, in their order."""
    found = [
        seconds
        for name, seconds in durations.items()
        if f"::{function}" in name and name.endswith(end)
    ]
    return found[1:]


def _median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


if __name__ == "__main__":
    main()
