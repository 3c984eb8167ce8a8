"""Run seeds of the simulator, replay one, or hunt with one of the product's guards taken out.

python -m tests.sim --seeds 1-2000 --jobs 2
python -m tests.sim --seeds 63 --trace
python -m tests.sim --seeds 1-200 --without p4-trim
"""

import argparse
import sys
import time

from tests.sim.batch import report, run_seeds
from tests.sim.mutant_table import MUTANTS, mutant_named
from tests.sim.simulation import STEPS, Outcome, simulate

PROGRESS_EVERY = 100


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="1-100", help="one seed, or a range as 1-2000")
    parser.add_argument("--steps", type=int, default=STEPS, help="faults per run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--without", metavar="GUARD", choices=[m.name for m in MUTANTS])
    parser.add_argument("--trace", action="store_true", help="of one seed: everything it does")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.trace:
        return _trace(seeds[0], options.steps, options.without)
    began = time.monotonic()
    failed = 0
    totals = [0, 0, 0, 0]
    outcomes = run_seeds(seeds, steps=options.steps, jobs=options.jobs, without=options.without)
    for done, outcome in enumerate(outcomes, 1):
        totals = [sum(pair) for pair in zip(totals, _counts(outcome), strict=True)]
        if outcome.violation is not None:
            failed += 1
            _say(report(outcome, steps=options.steps, without=options.without))
            if options.without:
                break
        if done % PROGRESS_EVERY == 0:
            _say(f"{done} seeds, {failed} violations, {time.monotonic() - began:.0f} s")
    writes, effects, reads, seconds = totals
    _say(
        f"{done} seeds: {failed} violations; {writes} writes ({effects} changed something) and "
        f"{reads} reads acknowledged in "
        f"{seconds} s of virtual time, {time.monotonic() - began:.0f} s of real time"
    )
    return 1 if failed else 0


def _trace(seed: int, steps: int, without: str | None) -> int:
    mutant = mutant_named(without) if without else None
    outcome = simulate(seed, steps=steps, mutant=mutant, echo=_say)
    _say(f"seed {seed}: {outcome.violation or 'clean'}, trace {outcome.trace_digest}")
    return 1 if outcome.violation else 0


def _counts(outcome: Outcome) -> tuple[int, int, int, int]:
    return outcome.writes, outcome.effects, outcome.reads, int(outcome.virtual_s)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
