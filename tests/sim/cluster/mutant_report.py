"""``python -m tests.sim.cluster.mutant_report``: how soon each missing guard is noticed."""

import sys

from tests.sim.cluster.batch import first_violation
from tests.sim.cluster.mutants import MUTANTS, WITHIN_SEEDS


def main() -> None:
    """A row per mutant, as in docs/RULES.md; arguments choose some of them."""
    chosen = sys.argv[1:] or [mutant.name for mutant in MUTANTS]
    for mutant in MUTANTS:
        if mutant.name not in chosen:
            continue
        found = first_violation(mutant.name, range(1, WITHIN_SEEDS + 1))
        seed, what = (found.seed, found.violation) if found else ("none", "")
        sys.stdout.write(f"| {mutant.name} | {mutant.without} | {seed} | {what} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
