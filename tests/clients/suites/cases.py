"""What became of a suite's tests, and what was expected of those that do not pass."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Result = Literal["passed", "failed", "skipped"]

_WIDEST_REASON: Final = 110


@dataclass(frozen=True, slots=True)
class Case:
    """One test. ``reason``: why it was skipped, or the first line of its failure."""

    name: str
    result: Result
    reason: str = ""


class Verdict(NamedTuple):
    """``unexpected``: failed without a reason known beforehand. ``outdated``: passed with one."""

    unexpected: Sequence[Case]
    outdated: Sequence[Case]


def judge(cases: Iterable[Case], known: Mapping[str, str]) -> Verdict:
    """``known``: test → why it fails, where the fault is not ours."""
    cases = list(cases)
    return Verdict(
        [case for case in cases if case.result == "failed" and case.name not in known],
        [case for case in cases if case.result == "passed" and case.name in known],
    )


def table(title: str, cases: Sequence[Case], known: Mapping[str, str]) -> str:
    """Counts, and a line for each test that did not pass."""
    counts = Counter(case.result for case in cases)
    lines = [
        f"{title}: {counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['skipped']} skipped"
    ]
    for case in sorted(cases, key=lambda case: (case.result, case.name)):
        if case.result != "passed":
            reason = known.get(case.name, case.reason) if case.result == "failed" else case.reason
            lines.append(f"  {case.result:7}  {case.name}: {reason[:_WIDEST_REASON]}")
    return "\n".join(lines)
