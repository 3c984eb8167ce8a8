"""The outcomes of cases, and how they are counted."""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec


class Outcome(enum.Enum):
    """The outcome of one case."""

    SAME = "same content"
    HEALED = "healed"
    """The damage was noticed and declared: what is missing is fetched from peers, and nothing wrong
    is served meanwhile."""
    REFUSED = "refused with file and advice"
    STALE = "as old as the copy"
    """A complete old folder opens with its old content. Only peers can tell, so the cluster level
    decides."""
    UNNAMED = "refused without file or advice"
    DIFFERENT = "SILENTLY DIFFERENT"
    VERIFY = "VERIFY DISAGREES"
    """``quorate log verify`` says that there are no problems where the broker says otherwise."""
    SIGNAL = "SIGNAL DEATH WITHOUT MESSAGE"
    TRACEBACK = "BARE TRACEBACK"
    HANG = "HANG"
    LOSS = "ACKNOWLEDGED LOSS"


ALLOWED = frozenset({Outcome.SAME, Outcome.HEALED, Outcome.REFUSED, Outcome.STALE})
"""The outcomes that no case may leave; everything else is a finding."""


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a case, and what was seen."""

    outcome: Outcome
    notes: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case with its outcome."""

    number: int
    node: str
    file: str
    kind: str
    what: str
    order: str = ""
    verdict: Verdict

    @property
    def is_finding(self) -> bool:
        return self.verdict.outcome not in ALLOWED

    def __str__(self) -> str:
        order = f", {self.order}" if self.order else ""
        notes = "; ".join(self.verdict.notes[:4])
        return (
            f"case {self.number}: {self.node}, {self.what}{order}: "
            f"{self.verdict.outcome.value}: {notes[:700]}"
        )


def table(cases: Iterable[Case]) -> str:
    """Return the outcomes by node, file and kind of damage, and their sums."""
    rows: defaultdict[tuple[str, str, str], Counter[Outcome]] = defaultdict(Counter)
    sums: Counter[Outcome] = Counter()
    for case in cases:
        rows[case.node, case.file, case.kind][case.verdict.outcome] += 1
        sums[case.verdict.outcome] += 1
    lines = [
        f"{node:7} {file:22} {kind:14} " + _counts(counted)
        for (node, file, kind), counted in sorted(rows.items())
    ]
    return "\n".join([*lines, f"{sum(sums.values())} cases: {_counts(sums)}"])


def _counts(counted: Counter[Outcome]) -> str:
    return ", ".join(f"{counted[each]} {each.value}" for each in Outcome if counted[each])
