"""franz-go's tests of its client (``pkg/kgo``) that ask a broker. Go fetches the module.

Those of ``pkg/kadm`` ask none.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case, Result
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.selection import Selection

MODULE: Final = "github.com/twmb/franz-go@v1.22.3"
CONFIG: Final[Mapping[str, object]] = {"group.initial.rebalance.delay.ms": 0}
_RECORDS: Final = 50_000
_LIMIT_S: Final = 900
_ASKS_A_BROKER: Final = re.compile(r"newTestClient|testClientOpts|getSeedBrokers|tmpTopic|Seeds\b")
_FUNCTION: Final = re.compile(r"^func (Test\w+)\(.*?^}", re.MULTILINE | re.DOTALL)
_RESULTS: Final[Mapping[str, Result]] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_SAYS_WHERE: Final = re.compile(r"^\s*\w+_test\.go:\d+: (.*)")


def run(selection: Selection, log: Path | None = None) -> Iterator[Case]:
    """Fetch the module and run its tests against three brokers. ``log`` receives all that they
    print."""
    source = _download()
    names, left = selection.split(test_names(source / "pkg" / "kgo"))
    yield from left
    if not names:
        return
    with suite_cluster(3, CONFIG) as cluster, (log or Path(os.devnull)).open("w") as printed:
        process = subprocess.Popen(
            [
                *("go", "test", "-json", "-vet=off", "-count=1", f"-timeout={_LIMIT_S}s"),
                *("-run", f"^({'|'.join(names)})$", "./pkg/kgo"),
            ],
            cwd=source,
            env={
                **os.environ,
                "KGO_SEEDS": cluster.bootstrap,
                "KGO_TEST_RF": "3",
                "KGO_TEST_RECORDS": str(_RECORDS),
                "KGO_LOG_LEVEL": "none",
            },
            stdout=subprocess.PIPE,
            stderr=printed,
            text=True,
        )
        assert process.stdout is not None
        with process:
            yield from cases_of(_copied(process.stdout, printed.write))


def _copied(lines: Iterable[str], write: Callable[[str], object]) -> Iterator[str]:
    for line in lines:
        write(line)
        yield line


def _download() -> Path:
    with tempfile.TemporaryDirectory() as empty:
        (Path(empty) / "go.mod").write_text("module fetched\n")
        told = subprocess.run(
            ["go", "mod", "download", "-json", MODULE],
            cwd=empty,
            stdout=subprocess.PIPE,
            check=True,
        )
    return Path(json.loads(told.stdout)["Dir"])


def test_names(package: Path) -> list[str]:
    """Return the tests whose code asks a broker."""
    functions = [
        found
        for path in sorted(package.glob("*_test.go"))
        for found in _FUNCTION.finditer(path.read_text())
    ]
    return [found[1] for found in functions if _ASKS_A_BROKER.search(found[0])]


def cases_of(lines: Iterable[str]) -> Iterator[Case]:
    """Read what ``go test -json`` prints. A test with parts is told of by its parts."""
    said: dict[str, str] = {}
    with_parts: set[str] = set()
    for event in map(json.loads, lines):
        name, action = event.get("Test"), event["Action"]
        if name is None:
            continue
        with_parts.add(name.rpartition("/")[0])
        if action == "output" and (found := _SAYS_WHERE.match(event["Output"])):
            said.setdefault(name, found[1].strip())
        elif action in _RESULTS and (name not in with_parts or action == "fail"):
            yield Case(name, _RESULTS[action], said.get(name, ""), event.get("Elapsed", 0.0))
