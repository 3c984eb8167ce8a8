"""What a run of a suite says: a line for each test, and one at the end that counts them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.findings import Expected

_WIDEST_REASON: Final = 160


def line(case: Case, expected: Expected) -> str:
    """Return what became of one test. A reason that is known comes before what the test said."""
    standing = expected.standing(case)
    word = case.result if standing in ("passed", "unexplained") else standing
    reason = case.reason if standing == "unexplained" else expected.reason(case)
    shown = "" if standing == "passed" else f": {reason[:_WIDEST_REASON]}"
    news = " (new)" if standing == "passed" and case.name not in expected.passed else ""
    return f"{word:14} {case.seconds:5.1f} s  {case.name}{news}{shown}"


def closing_line(suite: str, cases: Sequence[Case], expected: Expected) -> str:
    """Return the counts of all, in words that are the same for every suite."""
    counts = Counter(expected.standing(case) for case in cases)
    return (
        f"{suite}: {counts['passed']} passed, {counts['explained']} failed with a reason, "
        f"{counts['unexplained']} failed without one, {counts['not applicable']} not applicable"
    )


def unexplained(cases: Sequence[Case], expected: Expected) -> list[Case]:
    return [case for case in cases if expected.standing(case) == "unexplained"]


def write_json(path: Path, suite: str, cases: Sequence[Case], expected: Expected) -> None:
    """Write each test with its result, its standing, its seconds, and both reasons."""
    told = [
        {
            "name": case.name,
            "result": case.result,
            "standing": expected.standing(case),
            "seconds": round(case.seconds, 2),
            "said": case.reason,
            "finding": finding.reason if (finding := expected.finding(case.name)) else None,
        }
        for case in cases
    ]
    path.write_text(json.dumps({"suite": suite, "tests": told}, indent=1) + "\n")
