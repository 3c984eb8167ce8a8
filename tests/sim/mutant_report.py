"""``python -m tests.sim.mutant_report``: how soon the simulator notices each missing guard."""

import sys

from tests.sim.batch import first_violation
from tests.sim.mutant_table import MUTANTS
from tests.sim.mutants import WITHIN_SEEDS


def main() -> None:
    """A row per mutant, as in docs/RULES.md; arguments choose some of them."""
    chosen = sys.argv[1:] or [mutant.name for mutant in MUTANTS]
    for mutant in MUTANTS:
        if mutant.name not in chosen:
            continue
        found = first_violation(mutant.name, range(1, WITHIN_SEEDS + 1))
        seeds, what = (found.seed, found.violation) if found else ("none", "")
        sys.stdout.write(f"| {mutant.name} | {mutant.without} | {seeds} | {what} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
