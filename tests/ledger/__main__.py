"""Print the ledger: which test with server processes shows each demand, and which missing guard is
noticed.

    python -m tests.ledger            every guard is taken out, and its test has to fail: 15 s
    python -m tests.ledger --static   nothing is run: mutants count that are named

It ends with ``N demands: N with a real-process test, N with a mutant that was caught``, and with
exit code 1 if anything is missing that is not listed as a gap.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.ledger.code_mutants import CodeMutant
from tests.ledger.mutants import MUTANTS
from tests.ledger.rows import has_real_test, problems
from tests.ledger.server_fixtures import TESTS_ROOT
from tests.support.demands import Demand, load_demands

DEMANDS: Final = TESTS_ROOT / "demands.toml"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ledger", description=__doc__)
    parser.add_argument("--static", action="store_true", help="take no guard out")
    static: bool = parser.parse_args().static
    demands = load_demands(DEMANDS)
    named = [MUTANTS[one.mutant] for one in demands.values() if one.mutant in MUTANTS]
    outcomes = dict.fromkeys(MUTANTS, "") if static else _proved(named)
    wrong = [*problems(demands, MUTANTS), *filter(None, outcomes.values())]
    for line in table(demands, outcomes):
        print(line)  # noqa: T201
    for problem in wrong:
        print(f"WRONG: {problem}")  # noqa: T201
    verb = "is named" if static else "was caught"
    print(summary(demands, outcomes, verb))  # noqa: T201
    return 1 if wrong else 0


def _proved(mutants: Iterable[CodeMutant]) -> Mapping[str, str]:
    from tests.ledger.proof import caught

    return caught(mutants)


def table(demands: Mapping[str, Demand], outcomes: Mapping[str, str]) -> Iterable[str]:
    """Yield two or three lines for each demand."""
    for demand in demands.values():
        yield f"{demand.id:4} {demand.says}"
        yield f"       shown by   {_names(demand.real) or 'no test with server processes yet'}"
        if demand.mutant not in outcomes:
            yield "       guarded by no mutant yet"
            continue
        test = Path(MUTANTS[demand.mutant].caught_by).name
        verb = "passes" if outcomes[demand.mutant] else "fails"
        yield f"       without    {demand.mutant} {verb} {test}"


def _names(test_ids: Iterable[str]) -> str:
    return ", ".join(Path(one).name for one in test_ids)


def summary(
    demands: Mapping[str, Demand], outcomes: Mapping[str, str], verb: str = "was caught"
) -> str:
    """Return the last line. ``verb`` says of mutants what was done with them."""
    real = sum(map(has_real_test, demands.values()))
    noticed = sum(outcomes.get(one.mutant) == "" for one in demands.values())
    return (
        f"{len(demands)} demands: {real} with a real-process test, "
        f"{noticed} with a mutant that {verb}"
    )


if __name__ == "__main__":
    sys.exit(main())
