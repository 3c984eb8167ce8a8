"""The demands of ``tests/demands.toml``, and the report of those that nothing shows.

A test carries a demand if its name begins with the demand's id: ``test_c2_...``. The report speaks
of tests that were *run*: a skipped test shows nothing. It is made in full runs only, since a
part of the suite says nothing about the whole.

The tests that the ledger names for a demand (``real``) must have run as well, with voters and
brokers that were seen as processes meanwhile.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

DEFAULT_SELECTION = ("", "not slow")
"""Mark expressions of a full run: everything, or what ``make test`` runs."""

SERVER_PROCESSES = "server processes"
"""The property of a report: how many voters and brokers there were while the test ran."""

_CARRIED = re.compile(r"^test_((?:[bcdefq]\d+_)+)")


class Demand(NamedTuple):
    """One row: its stable id, what it says, when its test is owed, and what the ledger names.

    ``real`` are tests that show it with server processes. ``mutant`` is the guard whose absence a
    test notices. ``gaps`` say which of the two it does not have yet.
    """

    id: str
    says: str
    due: bool
    milestone: str = ""
    real: Sequence[str] = ()
    mutant: str = ""
    gaps: Sequence[str] = ()


def load_demands(path: Path) -> dict[str, Demand]:
    """The rows of the file at ``path`` by id, in its order."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Demand(name, **fields) for name, fields in rows.items()}


def carried_ids(node_id: str) -> frozenset[str]:
    """Ids in the name of the test ``node_id``: ``test_c1_c15_cas`` carries C1 and C15."""
    name = node_id.rpartition("::")[2]
    found = _CARRIED.match(name)
    return frozenset(found[1].upper().strip("_").split("_")) if found else frozenset()


def missing(demands: Mapping[str, Demand], carried: Iterable[str]) -> list[Demand]:
    """Rows that no test carries, the due ones first."""
    seen = set(carried)
    rows = [demand for demand in demands.values() if demand.id not in seen]
    return sorted(rows, key=lambda demand: not demand.due)


def is_full_run(config: pytest.Config, tests_root: Path) -> bool:
    """Whether this run was asked for the whole of ``tests_root`` and left nothing out."""
    option = config.option
    narrowed = (
        option.keyword
        or option.markexpr not in DEFAULT_SELECTION
        or option.collectonly
        or option.ignore
        or option.ignore_glob
        or option.deselect
        or getattr(option, "lf", False)
        or getattr(option, "stepwise", False)
    )
    if narrowed:
        return False
    here = config.invocation_params.dir
    wanted = [(here / argument).resolve() for argument in config.args]
    return any(path == tests_root or path in tests_root.parents for path in wanted)


class DemandReport:
    """Pytest plugin: collects what ran, prints the rows without a test, fails on the due ones."""

    def __init__(self, demands: Mapping[str, Demand]) -> None:
        self._demands = demands
        self._carried: set[str] = set()
        self._servers_during: dict[str, int] = {}
        self._skipped: set[str] = set()
        self._complete = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped.add(report.nodeid.partition("[")[0])
        if (report.when == "call" and not report.skipped) or report.failed:
            test_id = report.nodeid.partition("[")[0]
            self._carried |= carried_ids(test_id)
            seen = [n for name, n in report.user_properties if name == SERVER_PROCESSES]
            if seen and isinstance(seen[0], int):
                self._servers_during[test_id] = seen[0]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A run that was cut short says nothing; a whole one fails if a due row has no test."""
        self._complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not (
            session.shouldfail or session.shouldstop
        )
        owed = any(demand.due for demand in self._missing()) or any(self._not_shown())
        if self._complete and owed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._complete:
            return
        rows = self._missing()
        terminalreporter.section("demands")
        for demand in rows:
            when = "DUE" if demand.due else f"later: {demand.milestone}"
            terminalreporter.write_line(f"{demand.id:4} no test ({when}): {demand.says}")
        for line in self._not_shown():
            terminalreporter.write_line(line)
        unknown = sorted(self._carried - set(self._demands))
        if unknown:
            terminalreporter.write_line(f"in test names but not in the list: {', '.join(unknown)}")
        covered = len(self._demands) - len(rows)
        owed = sum(demand.due for demand in rows)
        terminalreporter.write_line(
            f"{covered} of {len(self._demands)} demands have a test; {owed} due without one"
        )

    def _not_shown(self) -> Iterator[str]:
        """Yield the tests of the ledger that did not run with server processes.

        One that was skipped, for a reason that it gave, leaves it to the others of its demand.
        """
        for demand in self._demands.values():
            is_shown = any(self._servers_during.get(test_id) for test_id in demand.real)
            for test_id in demand.real:
                if is_shown and test_id in self._skipped:
                    continue
                if test_id not in self._servers_during:
                    yield f"{demand.id:4} not shown: {test_id} was not run"
                elif not self._servers_during[test_id]:
                    yield f"{demand.id:4} not shown: {test_id} ran without server processes"

    def _missing(self) -> list[Demand]:
        return missing(self._demands, self._carried)
