"""What is known of a suite: the tests that pass, and why the others do not.

``expected/SUITE/passed.txt`` has a name per line. ``expected/SUITE/findings.toml`` has the
findings, those with the greatest effect first::

    [[finding]]
    reason = "why these tests do not pass"
    tests = ["Class.method", "Other.*"]
    applicable = false    # they cannot say anything about Quorate, and are not run
    at_times = true       # they fail at times, so they may be in passed.txt as well
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, Self

from tests.clients.suites.cases import Case

Standing = Literal["passed", "explained", "unexplained", "not applicable"]

EXPECTED: Final = Path(__file__).with_name("expected")


@dataclass(frozen=True, slots=True)
class Finding:
    """Why some tests do not pass. ``tests`` are names, in which ``*`` stands for anything."""

    reason: str
    tests: Sequence[str]
    applicable: bool = True
    at_times: bool = False

    def matches(self, name: str) -> bool:
        """Brackets are part of a name: ``test[1]`` is a test."""
        return any(fnmatchcase(name, one.replace("[", "[[]")) for one in self.tests)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a suite's tests are expected to do."""

    passed: frozenset[str] = frozenset()
    findings: Sequence[Finding] = ()

    @classmethod
    def load(cls, suite: str) -> Self:
        """Read both files of a suite; one that has none yet expects nothing."""
        passed, findings = _files(suite)
        return cls(
            frozenset(passed.read_text().splitlines()) if passed.exists() else frozenset(),
            [Finding(**one) for one in tomllib.loads(findings.read_text())["finding"]]
            if findings.exists()
            else [],
        )

    def finding(self, name: str) -> Finding | None:
        """Return the first finding about a test."""
        return next((one for one in self.findings if one.matches(name)), None)

    def is_applicable(self, name: str) -> bool:
        finding = self.finding(name)
        return finding is None or finding.applicable

    def standing(self, case: Case) -> Standing:
        """Judge one test. One that used to pass and does not is unexplained, whatever is said of
        others."""
        if case.result == "passed":
            return "passed"
        finding = self.finding(case.name)
        if case.name in self.passed and not (finding and finding.at_times):
            return "unexplained"
        if case.result == "skipped" or (finding and not finding.applicable):
            return "not applicable"
        return "explained" if finding else "unexplained"

    def reason(self, case: Case) -> str:
        finding = self.finding(case.name)
        return finding.reason if finding else case.reason

    def gone(self, cases: Iterable[Case]) -> list[Case]:
        """Return the tests that used to pass and are not among those of a whole run."""
        names = self.passed - {case.name for case in cases}
        return [Case(name, "failed", "it was not run") for name in sorted(names)]


def write_passed(suite: str, cases: Iterable[Case]) -> None:
    """Make the tests that passed the ones that are expected to."""
    passed, _ = _files(suite)
    passed.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(case.name for case in cases if case.result == "passed")
    passed.write_text("".join(f"{name}\n" for name in names))


def _files(suite: str) -> tuple[Path, Path]:
    return EXPECTED / suite / "passed.txt", EXPECTED / suite / "findings.toml"
